"""Caches of engines that have codes of their own: each trace of FINDINGS.md and EDGES.md fails on the library and on nothing else (under
--patched it passes), and drawn cases pass where all is repaired; what a cache profile says decides. Skipped where an engine's
environment is missing.

    test_cache_engines.py KVCHECK FOLDER
"""
import pathlib
import subprocess
import sys
import tempfile

ADAPTERS = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"
SKIPPED = 77
FAILED, PASSED = 1, 0
sys.path.insert(0, str(ADAPTERS))

from check_findings import SHARED, environment
from finding_pages import sections

# Options with which drawn cases pass.
CLEAN = {"mlx_vlm": " --padding zero --patched", "openvino": ""}
# Traces that pass, and under which options they fail: these state what the cache does not do.
SCHEDULE = ("new A; append A 16; attend A; append A 5; attend A; append A 11; attend A; append A 3; append A 1; append A 20; "
            "attend A; append A 1; attend A")
PASSES = {
    "transformers_quantized": [
        (f"cache k=channel:{bits}:g8:r16:{x} v=channel:{bits}:g8:r16:{x} x={x} hkv=2 hq=4 dk=64 dv=64 data=tokens:1; {SCHEDULE}",
         wrong)
        for bits, x, wrong in ((2, "f32", (" --cache-profile ''", " --cache-profile 'regroup=all'")),
                               (4, "bf16", (" --cache-profile 'regroup=open reads=before'",)))] + [
        # Axis 0, the default: passes over any number of tokens. And KIVI's pair, keys per channel.
        (f"cache k={k} v={v} x={x} hkv=2 hq=4 dk=64 dv=64 data=tokens:1; {schedule}", wrong)
        for k, v, x, schedule, wrong in (
            ("affine:2:g32:r16:f32", "affine:2:g32:r16:f32", "f32", "new A; append A 7; attend A; append A 5; append A 10; attend A; "
             "append A 1; append A 14; attend A; append A 1; attend A", (" --cache-profile ''", " --cache-profile 'regroup=all'")),
            ("affine:4:g64:r16:bf16", "affine:4:g64:r16:bf16", "bf16", SCHEDULE, (" --cache-profile 'regroup=open reads=before'",)),
            ("channel:2:g32:r64:f16", "affine:2:g32:r64:f16", "f16", "new A; append A 32; attend A; append A 33; append A 31; attend A",
             (" --cache-profile ''",)))],
    # Whole blocks, an open one coded again and again, and a batch; a copy goes on by itself.
    "openvino": [
        (f"cache k=channel:{bits}:g32:f32 v=f32 x=f32 hkv=2 hq=4 dk=64 dv=32 data=tokens:1; new A rows={rows}{SCHEDULE[5:]}; "
         "copy A -> B; append B 5; attend B; append A 40; attend A",
         (" --cache-profile ''", " --cache-profile 'regroup=all'", " --cache-profile 'regroup=open reads=before'"))
        for bits, rows in ((4, 1), (8, 3))],
    # Of a batch, rows alone, joined, left and merged: codes of every row are those of the row by itself.
    "mlx_vlm": [
        (f"cache k=turboquant:{bits}:g32:mlx_vlm:{x} v=turboquant:4:g32:mlx_vlm:s1:{x} x={x} hkv=2 hq=4 dk=32 dv=32 data=tokens:3; "
         "new A rows=2 pad=2,0; append A 4; attend A; append A 1; attend A; extract A 0 -> B; new C; append C 2; extend A C; "
         "append A 1; attend A; filter A 2,0; append A 1; attend A; filter A 1; append A 1; attend A; merge B,C -> D; append D 2", ())
        for bits in (3, 4) for x in ("f32", "f16")]}
CASES = 40

kvcheck, name = sys.argv[1:]


def judged(*arguments):
    done = subprocess.run([kvcheck, *arguments, "--limit", "300s"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


if environment(ADAPTERS / name) is None:
    print(f"skipped: no environment (tools/adapters/make_venv.sh {SHARED.get(name, name)})")
    sys.exit(SKIPPED)

faults = []
run = f"{ADAPTERS / name}/run"
asked = []
for section in sections(name):
    trace = section.trace("cache")
    if trace:
        asked += [(trace, "", FAILED), (trace, " --patched", PASSED)]
for trace, wrong in PASSES[name]:
    asked.append((trace, " --padding zero" if name == "mlx_vlm" else "", PASSED))
    asked += [(trace, options, FAILED) for options in wrong]
for trace, options, expected in asked:
    status, said = judged("run", trace, "--impl", f"{run}{options}")
    if status != expected:
        faults.append(f"{trace}{options}: exit {status} in place of {expected}\n{said}")
if name in CLEAN:
    with tempfile.TemporaryDirectory() as out:
        status, said = judged("fuzz", "--impl", f"{run}{CLEAN[name]}", "--cases", str(CASES), "--seed", "5", "--out", out)
    if status != PASSED:
        faults.append(f"drawn cases{CLEAN[name]}: exit {status}\n{said}")
print("\n".join([*faults, f"{len(asked)} traces, {len(faults)} not as expected"]))
sys.exit(1 if faults else 0)
