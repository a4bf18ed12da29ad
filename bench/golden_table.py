#!/usr/bin/env python3
"""Table per library and type: how close real kernels come to their derived bounds.

usage: golden_table.py KVCHECK FILE.h5 ...
Runs `kvcheck golden verify` on the files and prints a Markdown table: cases by outcome, judged
elements, the largest err/bound, and the median over cases of the median bound/mass.
"""

import collections
import json
import statistics
import subprocess
import sys


def library(name):
    implementation = name.rsplit("/", 1)[-1]
    for prefix, text in (("mlx_lm", "mlx-lm"), ("torch_flash", "PyTorch flash"),
                         ("torch_math", "PyTorch math"), ("mlx", "MLX")):
        if implementation.startswith(prefix):
            return text
    return implementation


def main():
    tool, *files = sys.argv[1:]
    result = subprocess.run([tool, "golden", "verify", "--json", "-", *files], capture_output=True,
                            text=True, check=False)
    report = json.loads(result.stdout)
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for case in report["cases"]:
        kind = case["case"].split(" ", 1)[0]
        for output in case["outputs"]:
            row = rows[library(case["name"]), kind, output["name"], output["dtype"]]
            row[case["counts_as"]].append(case["name"])
            row["judged"].append(output["counts"]["judged"])
            if case["counts_as"] != "passed":
                continue
            if output.get("worst") is not None:
                row["ratio"].append(float(output["worst"]["ratio"]))
            share = output.get("median_bound_share")
            if share is not None:
                row["share"].append(float(share))
    print("| library | kind | output | type | passed | MISTRUSTED as expected | findings | "
          "other | judged elements | max err/bound | median bound/mass |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for key in sorted(rows):
        row = rows[key]
        passed, trusted, found = (len(row[name]) for name in
                                  ("passed", "expected_mistrusted", "known_finding"))
        known = ("passed", "expected_mistrusted", "known_finding", "judged", "ratio", "share")
        other = sum(len(names) for name, names in row.items() if name not in known)
        ratio = f"{max(row['ratio']):.3g}" if row["ratio"] else ""
        share = f"{statistics.median(row['share']):.2g}" if row["share"] else ""
        print("| " + " | ".join(map(str, [*key, passed, trusted, found, other, sum(row["judged"]),
                                          ratio, share])) + " |")
    print(f"\n{report['summary']}")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
