#!/usr/bin/env python3
"""Searches with every libFuzzer target for a while and prints how far each came.

usage: fuzz_targets.py BUILD_DIR SECONDS [-j N]

BUILD_DIR: of the preset fuzz. Each target is run as its test is (ctest says how), but for SECONDS, with a corpus of its
own that starts from the committed inputs. Edges are those of all code under the target. Exits with 1 when a target
fails; then the input lies in the printed folder, and running the target on it alone repeats the failure.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile


def targets_of(build):
    """(name, command) of every test with the label `fuzz`."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    for test in json.loads(shown.stdout)["tests"]:
        labels = [p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"]
        if labels and "fuzz" in labels[0]:
            yield test["name"].removeprefix("Fuzz."), test["command"]


def search(name, command, seconds, folder):
    corpus = folder / name
    corpus.mkdir()
    committed = command[-1]
    options = [a for a in command[1:-2] if not a.startswith(("-runs=", "-artifact_prefix="))]
    done = subprocess.run([command[0], *options, f"-max_total_time={seconds}", "-print_pcs=0",
                           f"-artifact_prefix={folder}/{name}.", corpus, committed],
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    runs = re.search(r"stat::number_of_executed_units: (\d+)", text)
    last = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/(\S+)", text)
    return name, done.returncode, int(runs[1]) if runs else 0, last[-1] if last else ("?",) * 4, text[-3000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("seconds", type=int)
    parser.add_argument("-j", type=int, default=1)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kvcheck_fuzz_"))
    failed = False
    print("| target | inputs run | per second | edges | inputs kept |\n|---|---|---|---|---|")
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        for name, status, runs, (edges, _, kept, size), tail in pool.map(
                lambda target: search(*target, options.seconds, folder), list(targets_of(options.build))):
            print(f"| {name} | {runs} | {runs / options.seconds:.0f} | {edges} | {kept} ({size}) |", flush=True)
            if status != 0:
                failed = True
                print(f"{name}: exit status {status}; its input is in {folder}\n{tail}", file=sys.stderr)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
