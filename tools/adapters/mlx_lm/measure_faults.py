#!/usr/bin/env python3
"""Measures whether a new fault is told from what is known: measure_faults.py KVCHECK [NAME...] [--patched] [--minutes M] [--jobs N].

For each fault of faults.py (or those named), `kvcheck gate --known known_failures.txt` runs on the library with that fault put
into it, patched or not. A fault is found when the run reports a failure that is not known. One run without a fault, with a seed
that the file was not made with, says how often something known is taken for new. A line for each: found or not, after how many
seconds, by which signatures.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def faults():
    listed = re.search(r"^FAULTS = \{.*?in \((.*?)\)\}", (HERE / "faults.py").read_text(), re.S | re.M)
    return re.findall(r"\w+", listed.group(1))


def measure(options, fault):
    implementation = str(HERE / "run") + (" --patched" if options.patched else "") + (f" --fault {fault}" if fault else "")
    begin = time.monotonic()
    done = subprocess.run([options.kvcheck, "gate", "--impl", implementation, "--known", str(HERE / "known_failures.txt"),
                           "--fuzz-time", f"{options.minutes}m", "--seed", str(options.seed), "-j", "1", "-q", "--json", "-"],
                          stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - begin
    report = json.loads(done.stdout)
    new = sorted({reason.split('"')[1] for case in report["cases"] if case["counts_as"] == "failed"
                  for reason in case["reasons"] if reason.startswith('signature "')})
    cases = sum(campaign["cases"] for campaign in report["summary"]["campaigns"])
    notes = [note for note in report["summary"]["notes"] if note.startswith("failing cases")]
    return {"fault": fault or "(none)", "patched": options.patched, "found": bool(new), "seconds": round(seconds),
            "cases": cases, "new": new, "notes": notes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcheck")
    parser.add_argument("names", nargs="*", help="faults; (none): the library as it is")
    parser.add_argument("--patched", action="store_true")
    parser.add_argument("--minutes", type=float, default=5, help="of drawing; looking causes up comes on top")
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    names = [None if name == "(none)" else name for name in options.names] or [None, *faults()]
    unknown = [name for name in names if name and name not in faults()]
    if unknown:
        parser.error(f"no fault {', '.join(unknown)}")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = []
        for done in pool.map(lambda name: measure(options, name), names):
            print(json.dumps(done), flush=True)
            found.append(done)
    with_fault = [done for done in found if done["fault"] != "(none)"]
    print(f"{sum(done['found'] for done in with_fault)} of {len(with_fault)} faults reported as new", file=sys.stderr)


main()
