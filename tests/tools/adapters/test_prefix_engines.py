"""Prefix caches of engines: each history of FINDINGS.md and EDGES.md fails on the library and on nothing else (under --patched it does
not), and drawn histories pass where nothing was found or all is repaired. Skipped where an engine's environment is missing.

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

from check_findings import SHARED, environment
from finding_pages import sections

# The options whose drawn histories pass.
CLEAN = {"vllm": ("", " --groups", " --offload", " --offload-arc", " --file-tier --patched"), "transformers_paged": (" --patched",),
         "sglang": ("", " --tree python", " --tree radix", " --window", " --window --tree python", " --file --patched"),
         "lmcache": (" --patched", " --store disk --patched", " --store tiers --patched")}
# Fewer of those whose restarts are processes that import the library.
CASES, CASES_OF = 150, {" --file-tier --patched": 30, " --file --patched": 30}
UNREPAIRED = ("After max_cache_blocks", "What is kept in codes", "Files do not say")
LIMIT, ENDLESS, SHORT = "300s", "A prompt that is on disk and longer than memory is waited for without end", "60s"

kvcheck, name = sys.argv[1:]


def judged(*arguments, limit=LIMIT):
    done = subprocess.run([kvcheck, *arguments, "--limit", limit], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


if environment(ADAPTERS / name) is None:
    print(f"skipped: no environment (tools/adapters/make_venv.sh {SHARED.get(name, name)})")
    sys.exit(SKIPPED)

faults = []
for options in CLEAN.get(name, ()):
    with tempfile.TemporaryDirectory() as out:
        status, said = judged("fuzz", "--kind", "prefix", "--impl", f"{ADAPTERS / name}/run{options}", "--cases",
                              str(CASES_OF.get(options, CASES)), "--seed", "5", "--out", out)
    if status != PASSED or not re.search(r"hit_inside_block +[1-9]", said):
        faults.append(f"{name}{options}: exit {status}\n{said}")
found = sections(name)
if not found and name not in CLEAN:
    faults.append("nothing is asked of it")
for section in found:
    title, history = section.title, section.trace("prefix")
    if history is None:  # the section says why
        if "No history shows it" not in section.text:
            faults.append(f"{title}: neither a history nor a reason why there is none")
        continue
    chosen = re.search(r"^\(`(--[\w -]+)`", section.text, flags=re.M)
    store = chosen[1] if chosen else ""
    expected = [("", {FAILED})]
    if not title.startswith(UNREPAIRED):
        expected.append((" --patched", {PASSED, UNPROVED}))
    for options, statuses in expected:
        status, said = judged("run", history, "--impl", f"{ADAPTERS / name}/run {store}{options}",
                              limit=SHORT if title == ENDLESS and not options else LIMIT)
        if status not in statuses:
            faults.append(f"{title}{options}: exit {status}\n{said}")
print("\n".join([*faults, f"{len(faults)} not as expected"]))
sys.exit(1 if faults else 0)
