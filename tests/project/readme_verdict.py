#!/usr/bin/env python3
"""Checks that the verdict shown in README.md is what the tool prints today.

usage: readme_verdict.py KVCHECK README.md [--update]
"""

import pathlib
import re
import shlex
import subprocess
import sys

BLOCK = re.compile(r"(<!-- verdict: (?P<arguments>.*?) -->\n```\n)(?P<shown>.*?)(\n```)", re.S)


def main():
    tool, readme = sys.argv[1], pathlib.Path(sys.argv[2])
    text = readme.read_text()
    block = BLOCK.search(text)
    if block is None:
        sys.exit(f"{readme}: no block '<!-- verdict: ... -->'")
    result = subprocess.run([tool, *shlex.split(block["arguments"])], cwd=readme.parent,
                            capture_output=True, text=True, check=False)
    if result.returncode != 1:
        sys.exit(f"expected exit status 1 of a failing verdict, got {result.returncode}: "
                 f"{result.stderr}")
    printed = result.stdout.rstrip("\n")
    if "--update" in sys.argv:
        readme.write_text(text[:block.start("shown")] + printed + text[block.end("shown"):])
        return
    if printed != block["shown"]:
        sys.exit(f"{readme} shows another verdict than the tool prints; run this script with --update:\n"
                 f"{printed}")


if __name__ == "__main__":
    main()
