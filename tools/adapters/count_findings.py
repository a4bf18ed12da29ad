#!/usr/bin/env python3
"""The numbers of findings that pages show, as the sections of NAME/FINDINGS.md and NAME/EDGES.md give them.

    tools/adapters/count_findings.py [--update]

Compares the table of each FINDINGS.md, the column "found" of README.md beside this file, and the number in the README.md of the
repository; --update writes what differs. Exit codes: 0 they are right (or now are); 1 some are not.
"""
import collections
import pathlib
import re
import sys

from finding_pages import ADAPTERS, CLASSES, DIFFERENCE, EDGE, GENERATES, IN_USE, names, sections

TOP = ADAPTERS.parents[1] / "README.md"


def counts(name):
    found = collections.Counter(section.kind for section in sections(name))
    return {kind: found[kind] for page in CLASSES for kind in CLASSES[page]}


def several(number, one, many):
    return f"{number} {one if number == 1 else many}"


def table(name, counted):
    """Of FINDINGS.md."""
    rows = []
    for kind, number in counted.items():
        said = kind[0].lower() + kind[1:]
        if kind in (EDGE, DIFFERENCE):
            said = f"[{said}](EDGES.md), in no count" if (ADAPTERS / name / "EDGES.md").is_file() else f"{said}, in no count"
        rows.append(f"| {said} | {number} |")
    return "\n".join(["| class | number |", "|---|---|", *rows])


def claim(name, counted):
    """Of README.md."""
    total = counted[GENERATES] + counted[IN_USE]
    return (f"[{several(total, 'finding', 'findings')}]({name}/FINDINGS.md): {counted[GENERATES]} wrong end to end, "
            f"{counted[IN_USE]} in use")


def written():
    """{page: (what it says, what it should say)}"""
    every = {name: counts(name) for name in names()}
    pages = {}
    for name, counted in every.items():
        path = ADAPTERS / name / "FINDINGS.md"
        pages[path] = (path.read_text(), re.sub(r"^\| class \| \w+ \|\n\|---\|---\|(\n\|.*\|)*", lambda _: table(name, counted),
                                                path.read_text(), count=1, flags=re.M))
    total = collections.Counter()
    for counted in every.values():
        total.update(counted)
    findings = total[GENERATES] + total[IN_USE]
    index = ADAPTERS / "README.md"
    text = index.read_text()
    for name, counted in every.items():
        text = re.sub(rf"\[\d+ findings?\]\({name}/FINDINGS\.md\): [^.;|]*?in use", lambda _: claim(name, counted), text)
    text = re.sub(r"^Together \d+ findings: .*$", lambda _: (
        f"Together {findings} findings: {total[GENERATES]} wrong answers end to end and {total[IN_USE]} in use; beside them, in no count, "
        f"{total[EDGE]} edges and {total[DIFFERENCE]} differences."), text, flags=re.M)
    pages[index] = (index.read_text(), text)
    pages[TOP] = (TOP.read_text(), re.sub(r"\bwith the \d+ findings(?: and \d+ differences)?", f"with the {findings} findings",
                                          TOP.read_text()))
    return pages


def main(arguments):
    if arguments not in ([], ["--update"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = {path: new for path, (old, new) in written().items() if old != new}
    for path, new in stale.items():
        if arguments:
            path.write_text(new)
        else:
            print(f"{path.relative_to(TOP.parent)} shows other numbers: tools/adapters/count_findings.py --update")
    return 1 if stale and not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
