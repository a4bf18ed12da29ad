"""Each trace of FINDINGS.md fails on mlx-lm and on nothing else: with the repairs of patched.py it passes. Skipped
without mlx-lm's environment.

    test_mlx_lm_traces.py KVCHECK
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"))

from check_findings import environment

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters/mlx_lm"
SKIPPED = 77
FAILED, PASSED = 1, 0

if environment(FOLDER) is None:
    print("skipped: no tools/adapters/mlx_lm/venv (tools/adapters/make_venv.sh mlx_lm)")
    sys.exit(SKIPPED)

sections = re.split(r"^### ", (FOLDER / "FINDINGS.md").read_text(), flags=re.M)[1:]
faults = 0 if len(sections) >= 20 else 1
for section in sections:
    title = section.splitlines()[0]
    trace = re.search(r"^```\n(.*?)\n```", section, flags=re.M).group(1)
    needed = "".join(f" {options}" for options in re.findall(r"^`run (.+)` is what is judged here", section, flags=re.M))
    for options, expected in (needed, FAILED), (f"{needed} --patched", PASSED):
        done = subprocess.run([sys.argv[1], "run", trace, "--impl", f"{FOLDER}/run{options}", "--limit", "300s"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != expected:
            faults += 1
            print(f"{title}{options}: exit {done.returncode} in place of {expected}\n{done.stdout}{done.stderr}")
print(f"{len(sections)} traces, {faults} not as expected")
sys.exit(1 if faults else 0)
