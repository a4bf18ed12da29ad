#!/usr/bin/env python3
"""Checks that what README.md shows of the tool is what it prints today.

usage: readme_verdict.py KVCHECK README.md [--from FOLDER] [--update]

Two kinds of blocks are run, in FOLDER (default: that of README.md):
  <!-- verdict: ARGUMENTS -->    a fenced block with the standard output of `kvcheck ARGUMENTS`, which fails (status 1)
  <!-- exits with N -->          a ```console block: a line "$ kvcheck ARGUMENTS" (a \\ at its end: it goes on in the
                                 next line), then the standard output. The exit status is N.
"""

import pathlib
import re
import shlex
import subprocess
import sys

VERDICT = re.compile(r"<!-- verdict: (?P<arguments>.*?) -->\n```\n(?P<shown>.*?)\n```", re.S)
CONSOLE = re.compile(r"<!-- exits with (?P<status>\d+) -->\n```console\n"
                     r"\$ kvcheck (?P<arguments>(?:[^\n]*\\\n)*[^\n]*)\n(?P<shown>.*?)\n```", re.S)
# Every mark begins a block that one of the above finds.
MARK = re.compile(r"<!-- (?:verdict: |exits with )|^```console$", re.M)


def printed_by(tool, block, folder):
    arguments = block["arguments"].replace("\\\n", " ")
    status = int(block.groupdict().get("status", 1))
    result = subprocess.run([tool, *shlex.split(arguments)], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != status:
        sys.exit(f"kvcheck {arguments}\nexit status {result.returncode}, README.md says {status}: {result.stderr}")
    return result.stdout.rstrip("\n")


def main():
    tool, readme = sys.argv[1], pathlib.Path(sys.argv[2])
    folder = pathlib.Path(sys.argv[sys.argv.index("--from") + 1]) if "--from" in sys.argv else readme.parent
    text = readme.read_text()
    blocks = sorted([*VERDICT.finditer(text), *CONSOLE.finditer(text)], key=lambda block: block.start())
    strays = [mark for mark in MARK.finditer(text)
              if not any(block.start() <= mark.start() < block.end() for block in blocks)]
    if strays:
        line = text.count("\n", 0, strays[0].start()) + 1
        sys.exit(f"{readme}:{line}: a block that is not held to the tool")
    expected = {CONSOLE} if "--from" in sys.argv else {VERDICT, CONSOLE}
    if not expected <= {block.re for block in blocks}:
        sys.exit(f"{readme}: a '<!-- verdict: ... -->' and a '<!-- exits with N -->' block are expected")
    updated, at = "", 0
    for block in blocks:
        printed = printed_by(tool, block, folder)
        if printed != block["shown"] and "--update" not in sys.argv:
            sys.exit(f"{readme} shows something else than the tool prints for {block['arguments']}; run this script "
                     f"with --update:\n{printed}")
        updated += text[at:block.start("shown")] + printed
        at = block.end("shown")
    if "--update" in sys.argv:
        readme.write_text(updated + text[at:])


if __name__ == "__main__":
    main()
