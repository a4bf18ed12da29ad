#!/usr/bin/env python3
"""Runs ctest, and says before its closing summary what did not run, and why.

    tools/run_ctest.py NOTES ARGUMENT...     NOTES: a file with a line for each thing that was left out before; it need not be there
"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

# ctest's summary begins with this line.
SUMMARY = re.compile(r"\d+% tests passed")


def reason_of(output):
    """Of what a skipped test printed: the rest of its line "SKIPPED: ...", what GoogleTest was told, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if line.startswith("SKIPPED:"):
            return line.removeprefix("SKIPPED:").strip()
    for line, following in zip(lines, lines[1:]):
        if line.endswith(": Skipped"):
            return following
    return lines[-1] if lines else "no reason given"


def skipped(report):
    """{reason: [test]} of ctest's JUnit report."""
    reasons = collections.defaultdict(list)
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            reasons[reason_of(case.findtext("system-out") or "")].append(case.get("name"))
    return reasons


def main(notes, *arguments):
    closing = []
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "tests.xml")
        with subprocess.Popen(["ctest", *arguments, "--output-junit", report], stdout=subprocess.PIPE, text=True,
                              errors="replace") as ctest:
            for line in ctest.stdout:
                if closing or SUMMARY.match(line):
                    closing.append(line)
                else:
                    print(line, end="", flush=True)
        left_out = [(reason, ", ".join(tests)) for reason, tests in
                    (skipped(report) if os.path.exists(report) else {}).items()]
    if pathlib.Path(notes).exists():
        left_out += [(line, "") for line in pathlib.Path(notes).read_text(encoding="utf-8").splitlines()]
    if left_out:
        print("== what did not run, and why")
        for reason, tests in left_out:
            print(f"  {reason}: {tests}" if tests else f"  {reason}")
        print()
    sys.stdout.write("".join(closing))
    return ctest.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
