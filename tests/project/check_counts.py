#!/usr/bin/env python3
"""Checks that counts which pages repeat are those of what they count.

usage: check_counts.py ROOT

COUNTS names, for a sentence of a page, what each of its numbers must be. A sentence that is no longer there is an error too: then
its row goes, or says where it went.
"""
import csv
import pathlib
import re
import sys


def findings(root):
    """Of all adapters, and differences: tools/adapters/count_findings.py writes both, and that of the top README."""
    text = (root / "tools/adapters/README.md").read_text()
    match = re.search(r"Together (\d+) findings:.*?(\d+) differences", text)
    return tuple(int(number) for number in match.groups()) if match else ()


def table_faults(root, kind):
    """Faults of a kind in tools/faults/TABLE.md."""
    return len(re.findall(rf"^\| \w+ \| {kind} \|", (root / "tools/faults/TABLE.md").read_text(), flags=re.M))


def measured_faults(root):
    """Cache faults of the newest run of bench/fuzz/fault_power, and how many of its searches found one."""
    with open(root / "bench/results/fault_power.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    rows = [row for row in rows if row["run"] == rows[-1]["run"] and row["fault"] != "all"]
    counts = [[int(number) for number in row["found"].split("/")] for row in rows]
    return len(rows), sum(count[0] for count in counts), sum(count[1] for count in counts)


COUNTS = (
    ("tools/coverage.md", r"(\d+) findings and (\d+) differences", findings),
    ("tools/coverage.md", r"Each of (\d+) cache faults \(of the (\d+) of",
     lambda root: (measured_faults(root)[0], table_faults(root, "cache"))),
    ("bench/README.md", r"drawn traces on (\d+) cache faults \| (\d+)/(\d+) found", measured_faults),
)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    status = 0
    for page, sentence, count in COUNTS:
        text = (root / page).read_text()
        match = re.search(sentence, text)
        said, true = match and tuple(int(number) for number in match.groups()), tuple(count(root))
        if said != true:
            place = f"{page}:{text.count(chr(10), 0, match.start()) + 1}" if match else page
            print(f"{place}: " + (f"{match[0]!r} says {said}, counted {true}" if match else f"no sentence fits {sentence!r}"))
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
