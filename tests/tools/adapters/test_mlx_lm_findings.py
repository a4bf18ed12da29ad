"""check_findings.py in mlx-lm's environment; skipped without one."""
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters/mlx_lm"
SKIPPED = 77

python = FOLDER / "venv/bin/python"
if not python.exists():
    print("skipped: no tools/adapters/mlx_lm/venv (tools/adapters/make_venv.sh mlx_lm)")
    sys.exit(SKIPPED)
sys.exit(subprocess.run([str(python), str(FOLDER / "check_findings.py")], stdin=subprocess.DEVNULL).returncode)
