#!/usr/bin/env python3
"""Appends what peers.py measured to the data of bench/attention.md: bench/results/attention_{times,prefill,required,reads}.csv.

    peer_rows.py FILE.json RUN [FOLDER]

FILE.json as peers.py --json writes it; RUN has to stand in FOLDER/runs.csv (default: bench/results).
"""
import csv
import json
import pathlib
import re
import statistics
import sys

import peer_report
from peer_report import flops, fma_shares, quartiles, shares

SENSES = {"at least": ">=", "at most": "<="}


def spread(values, factor=1.0, digits=1):
    low, middle, high = (f"{factor * value:.{digits}f}" for value in quartiles(values))
    return [middle, low, high]


def of_decode(case):
    """Rows of attention_times and attention_reads."""
    reads = [case["f16_bytes"] / read / 1e9 for read in case["reads"][str(case["f16_bytes"])]]
    key = [case["case"], case["tokens"]]
    yield "attention_reads", [*key, f"{statistics.median(reads):.1f}"]
    for label, entry in case["entries"].items():
        milliseconds = 1e3 * statistics.median(entry["seconds"])
        yield "attention_times", [*key, label, f"{milliseconds:.3f}", *spread(shares(case, label), 100),
                                  "a read of as many bytes"]


def of_prefill(case):
    for label, entry in case["entries"].items():
        rate = flops(case) / statistics.median(entry["seconds"]) / 1e9
        yield "attention_prefill", [case["tokens"], "causal" if case["causal"] else "all visible", label, f"{rate:.1f}",
                                    *spread(fma_shares(case, label), 100)]


def required(case):
    part, tokens = peer_report.title(case).replace(" tokens", "").split(", ", 1)
    for what, find in peer_report.LINES[case["case"]](case):
        try:
            values, must, aim, _, sense = find()
        except KeyError:  # a library that was not there
            continue
        what = re.sub(r"(torch f32), (enable_gqa|K and V repeated)$", r"\1", what)  # the faster of both
        limits = [f"{SENSES[sense]} {limit:g}" if limit is not None else other for limit, other in ((must, "stated"), (aim, "-"))]
        yield "attention_required", [part, tokens, what, *limits, *spread(values, 1, 3)]


def main(file, run, folder=pathlib.Path(__file__).resolve().parents[1] / "results"):
    folder = pathlib.Path(folder)
    with open(folder / "runs.csv", encoding="utf-8") as runs:
        if run not in (row["run"] for row in csv.DictReader(runs)):
            sys.exit(f"peer_rows.py: no run '{run}' in {folder / 'runs.csv'}")
    for case in map(json.loads, pathlib.Path(file).read_text().splitlines()):
        rows = list(required(case))
        rows += of_decode(case) if case["case"] in ("decode", "layers") else of_prefill(case) if case["case"] == "prefill" else []
        for name, row in rows:
            with open(folder / f"{name}.csv", "a", newline="", encoding="utf-8") as out:
                csv.writer(out, lineterminator="\n").writerow([run, *row])


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
