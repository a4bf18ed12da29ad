"""check_findings.py of an adapter; skipped without its environment: test_findings.py NAME."""
import pathlib
import subprocess
import sys

ADAPTERS = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"
SKIPPED = 77
sys.path.insert(0, str(ADAPTERS))

from check_findings import SHARED, environment

name = sys.argv[1]
if environment(ADAPTERS / name) is None:
    print(f"skipped: no environment (tools/adapters/make_venv.sh {SHARED.get(name, name)})")
    sys.exit(SKIPPED)
command = [sys.executable, str(ADAPTERS / "check_findings.py"), name]
sys.exit(subprocess.run(command, stdin=subprocess.DEVNULL).returncode)
