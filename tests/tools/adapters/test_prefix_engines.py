"""Prefix caches of engines: each history of FINDINGS.md fails on the library and on nothing else (under --patched it does
not), and drawn histories of those without findings pass. Skipped where an engine's environment is missing.

    test_prefix_engines.py KVCHECK FOLDER
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ADAPTERS = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"
SKIPPED = 77
FAILED, PASSED, UNPROVED = 1, 0, 3
sys.path.insert(0, str(ADAPTERS))

from check_findings import environment

# Of folders without FINDINGS.md: where the environment is, and the options whose drawn histories pass.
CLEAN = {"vllm": ("vllm", ("", " --groups")), "transformers_paged": ("transformers", ("",))}
UNREPAIRED = ("After max_cache_blocks", "What is kept in codes")

kvcheck, name = sys.argv[1:]


def judged(*arguments):
    done = subprocess.run([kvcheck, *arguments, "--limit", "300s"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


if environment(ADAPTERS / CLEAN.get(name, (name,))[0]) is None:
    print(f"skipped: no environment (tools/adapters/make_venv.sh {CLEAN.get(name, (name,))[0]})")
    sys.exit(SKIPPED)

faults = []
if name in CLEAN:
    for options in CLEAN[name][1]:
        with tempfile.TemporaryDirectory() as out:
            status, said = judged("fuzz", "--kind", "prefix", "--impl", f"{ADAPTERS / name}/run{options}", "--cases", "150",
                                  "--seed", "5", "--out", out)
        if status != PASSED or not re.search(r"hit_inside_block +[1-9]", said):
            faults.append(f"{name}{options}: exit {status}\n{said}")
else:
    sections = re.split(r"^### ", (ADAPTERS / name / "FINDINGS.md").read_text(), flags=re.M)[1:]
    if not sections:
        faults.append("FINDINGS.md has no section")
    for section in sections:
        title = section.splitlines()[0]
        history, store = re.search(r"^```\n(prefix .*)\n```\n\(`--store (\w+)`", section, flags=re.M).groups()
        expected = [("", {FAILED})]
        if not title.startswith(UNREPAIRED):
            expected.append((" --patched", {PASSED, UNPROVED}))
        for options, statuses in expected:
            status, said = judged("run", history, "--impl", f"{ADAPTERS / name}/run --store {store}{options}")
            if status not in statuses:
                faults.append(f"{title}{options}: exit {status}\n{said}")
print("\n".join([*faults, f"{len(faults)} not as expected"]))
sys.exit(1 if faults else 0)
