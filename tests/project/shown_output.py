#!/usr/bin/env python3
"""Checks that what the pages show of the tool is what it prints today.

usage: shown_output.py KVCHECK FOLDER [PAGE...] [--update]     default: every page below FOLDER that shows something

Two kinds of blocks are run, in FOLDER:
  <!-- verdict: ARGUMENTS -->    a fenced block with the standard output of `kvcheck ARGUMENTS`, which fails (status 1)
  <!-- exits with N -->          a ```console block: a line "$ kvcheck ARGUMENTS" (a \\ at its end: it goes on in the
                                 next line), then the standard output. The exit status is N.
A shown line of three dots alone, at any indentation, stands for one or more lines that are left out.
"""

import os
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
# Folders that hold nothing of the project's own.
SKIPPED = {"build", "venv", "node_modules", "__pycache__"}


def pages_below(folder):
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        yield from (pathlib.Path(path) / name for name in sorted(files) if name.endswith(".md"))


def printed_by(tool, block, folder):
    arguments = block["arguments"].replace("\\\n", " ")
    status = int(block.groupdict().get("status", 1))
    result = subprocess.run([tool, *shlex.split(arguments)], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != status:
        sys.exit(f"kvcheck {arguments}\nexit status {result.returncode}, the page says {status}: {result.stderr}")
    return result.stdout.rstrip("\n")


def agrees(shown, printed):
    """Line by line; what is left out is found by the line after it."""
    pattern = "\n".join(r"[^\n]*(?:\n[^\n]*)*?" if line.strip() == "..." else re.escape(line) for line in shown.split("\n"))
    return re.fullmatch(pattern, printed) is not None


def blocks_of(page, text):
    blocks = sorted([*VERDICT.finditer(text), *CONSOLE.finditer(text)], key=lambda block: block.start())
    strays = [mark for mark in MARK.finditer(text)
              if not any(block.start() <= mark.start() < block.end() for block in blocks)]
    if strays:
        line = text.count("\n", 0, strays[0].start()) + 1
        sys.exit(f"{page}:{line}: a block that is not held to the tool")
    return blocks


def main():
    update = "--update" in sys.argv
    tool, folder, *names = [argument for argument in sys.argv[1:] if argument != "--update"]
    pages = [pathlib.Path(name) for name in names] or list(pages_below(folder))
    status = found = 0
    for page in pages:
        text = page.read_text()
        blocks = blocks_of(page, text)
        if names and not blocks:
            sys.exit(f"{page}: a '<!-- verdict: ... -->' or a '<!-- exits with N -->' block is expected")
        found += len(blocks)
        updated, at = "", 0
        for block in blocks:
            printed = printed_by(tool, block, folder)
            shown = block["shown"]
            if not agrees(shown, printed):
                left_out = any(line.strip() == "..." for line in shown.split("\n"))
                if not update or left_out:
                    print(f"{page} shows something else than the tool prints for {block['arguments']}; "
                          f"{'correct it' if left_out else 'run this script with --update'}:\n{printed}", file=sys.stderr)
                    status = 1
                else:
                    shown = printed
            updated += text[at:block.start("shown")] + shown
            at = block.end("shown")
        if update:
            page.write_text(updated + text[at:])
    if not found:
        sys.exit(f"no page below {folder} shows what the tool prints")
    return status


if __name__ == "__main__":
    sys.exit(main())
