#!/usr/bin/env python3
"""Checks that a name of a type, or of an inline function with its arguments, is defined in one file alone.

    check_types.py [ROOT]

Two definitions of one name in a namespace are one for the linker, which takes the functions of either for both and says nothing. What stands in a namespace
without a name is a file's own. Exit 0: none; 1: some are (one line each on stdout); 2: nothing was found to check.
"""

import collections
import os
import re
import sys

ROOMS = ("reference", "optimized", "golden", "fuzz", "tools", "bench", "tests")
SOURCES = (".h", ".cc")
NAMESPACE = re.compile(r"^(?:inline )?namespace\s*([\w:]*)\s*\{(?!.*\})")
TYPE = re.compile(r"^(?:struct|class|enum class|enum|union) (\w+)(?: final)?\s*(?::(?!:)[^;]*)?(?:\{.*|[^;:{]*)$")
INLINE = re.compile(r"^inline (?!namespace|constexpr [^(]*=)[\w:<>,&* ]+?[ &*](\w+\([^{;]*\))[^;]*(?:\{.*)?$")


def definitions(text):
    """Names of types and signatures of inline functions that a file defines for all of the program."""
    namespaces = []
    for line in text.split("\n"):
        opened = NAMESPACE.match(line)
        if opened:
            namespaces.append(opened.group(1))
        elif line.startswith("}  // namespace"):
            if namespaces:
                namespaces.pop()
        elif "" not in namespaces:
            defined = TYPE.match(line) or INLINE.match(line)
            if defined:
                yield "::".join(namespaces + [defined.group(1)])


def main(argv):
    root = argv[1] if len(argv) > 1 else "."
    files = collections.defaultdict(set)
    for room in ROOMS:
        for folder, folders, names in os.walk(os.path.join(root, room)):
            folders[:] = [name for name in folders if name not in ("venv", "build", "consumer")]
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    for defined in definitions(file.read()):
                        files[defined].add(os.path.relpath(path, root))
    if not files:
        print(f"{root}: no definition was found", file=sys.stderr)
        return 2
    twice = {name: sorted(where) for name, where in files.items() if len(where) > 1}
    for name, where in sorted(twice.items()):
        print(f"{name} is defined in {' and in '.join(where)}: give one of them another name")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
