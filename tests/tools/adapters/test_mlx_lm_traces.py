"""Each trace of FINDINGS.md and EDGES.md fails on mlx-lm and on nothing else: with the repairs of patched.py it passes. Skipped
without mlx-lm's environment.

    test_mlx_lm_traces.py KVCHECK
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"))

from check_findings import environment
from finding_pages import sections

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters/mlx_lm"
SKIPPED = 77
FAILED, PASSED = 1, 0

if environment(FOLDER) is None:
    print("skipped: no tools/adapters/mlx_lm/venv (tools/adapters/make_venv.sh mlx_lm)")
    sys.exit(SKIPPED)

asked = sections("mlx_lm")
faults = 0 if len(asked) >= 20 else 1
for section in asked:
    trace = re.search(r"^```\n(.*?)\n```", section.text, flags=re.M).group(1)
    needed = "".join(f" {options}" for options in re.findall(r"^`run (.+)` is what is judged here", section.text, flags=re.M))
    for options, expected in (needed, FAILED), (f"{needed} --patched", PASSED):
        done = subprocess.run([sys.argv[1], "run", trace, "--impl", f"{FOLDER}/run{options}", "--limit", "300s"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != expected:
            faults += 1
            print(f"{section.title}{options}: exit {done.returncode} in place of {expected}\n{done.stdout}{done.stderr}")
print(f"{len(asked)} traces, {faults} not as expected")
sys.exit(1 if faults else 0)
