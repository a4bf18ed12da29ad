#!/usr/bin/env python3
"""Checks that nothing outside a family of storage formats asks which family a format is of.

    check_formats.py [ROOT]

The families are the alternatives of UnrotatedFormat in reference/spec/rotated_format.h, and RotatedFormat. Their own files, whose names begin with the
family's in `reference/` and `optimized/`, may take a format apart; others go by planes and members, or visit all families.
Exit 0: no line breaks this; 1: some do (one line each on stdout); 2: nothing was found to check.
"""

import os
import re
import sys

ROOMS = ("reference", "golden", "fuzz", "tools", "bench", "optimized")
OWN_ROOMS = ("reference/", "optimized/")
DECLARATION = "reference/spec/rotated_format.h"
SOURCES = (".h", ".cc")


def families(root):
    """{type: the beginning of the names of its own files}."""
    with open(os.path.join(root, DECLARATION), encoding="utf-8") as file:
        declared = re.search(r"using UnrotatedFormat =\s*std::variant<([^>]*)>", file.read())
    names = re.findall(r"\w+", declared.group(1)) + ["RotatedFormat"] if declared else []
    return {name: re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Format")).lower() for name in names}


def is_own(path, stem):
    return path.startswith(OWN_ROOMS) and os.path.basename(path).startswith(stem)


def faults(path, text, stems):
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(r"\b(?:get|get_if|holds_alternative)<(?:\w+::)*(\w+)>", line):
            if name in stems and not is_own(path, stems[name]):
                found.append(f"{path}:{number}: asks whether a format is a {name}: go by its planes and members "
                             "(reference/spec/kv_format.h), or visit every family")
    return found


def main(arguments):
    root = arguments[1] if len(arguments) > 1 else "."
    try:
        stems = families(root)
    except OSError:
        stems = {}
    checked, found = 0, []
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(root, room)):
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                path = os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    found += faults(path, file.read(), stems)
                checked += 1
    for line in found:
        print(line)
    if checked == 0 or not stems:
        print(f"no sources, or no families, under {root}", file=sys.stderr)
        return 2
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
