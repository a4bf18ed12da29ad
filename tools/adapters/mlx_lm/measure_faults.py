#!/usr/bin/env python3
"""Measures whether a new fault is told from what is known: measure_faults.py KVCHECK [NAME...] [--patched] [--minutes M] [--jobs N].

For each fault of faults.py (or those named), `kvcheck gate --known known_failures.txt --stop-at-new` runs on the library with that
fault put into it, patched or not, in rounds of more and more drawn cases, each with another seed, until one reports a failure that
is not known or M minutes are over. A failure that the library has without the fault too is one that the file lacks: it is
counted apart and known from then on, and the round is repeated. (none): the library as it is, drawn for M minutes; all that is new
then is what the file lacks. A line of JSON for each: found or not, after how many seconds of how many cases, by which signatures, and
what the file lacked. --table FILE... reads such lines and prints them as a table.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FIRST_ROUND = 500  # cases; each round has three times as many as the one before
NOTHING = "case nothing\nreason a suite has a case\ncache k=f32 dk=8 data=tokens:1; new A\n"


def faults():
    listed = re.search(r"^FAULTS = \{.*?in \((.*?)\)\}", (HERE / "faults.py").read_text(), re.S | re.M)
    return re.findall(r"\w+", listed.group(1))


def gate(options, implementation, suite, known, *more):
    """The report of one round; what it found is no error here."""
    knows = ["--known", str(known)] if known else []
    done = subprocess.run([options.kvcheck, "gate", "--impl", implementation, "--suite", str(suite), *knows, "-j", "1", "-q", "--json", "-",
                           *more], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"kvcheck gate ended with {done.returncode}")
    return json.loads(done.stdout)


def failures(report):
    """[(signature, case), ...] of what counts as failed."""
    return [(reason.split('"')[1], case["case"].replace("\n", "; ")) for case in report["cases"] if case["counts_as"] == "failed"
            for reason in case["reasons"] if reason.startswith('signature "')]


def fails_without(options, implementation, new, folder):
    """Those of them that fail by the same signature without the fault."""
    suite = folder / "new.cases"
    suite.write_text("\n".join(f"case t{number}\nreason new\n{case}\n" for number, (_, case) in enumerate(new)))
    report = gate(options, implementation, suite, None, "--fuzz-cases", "0")
    alike = {(case["name"].rpartition("/t")[2], reason.split('"')[1]) for case in report["cases"] if case["counts_as"] == "failed"
             for reason in case["reasons"] if reason.startswith('signature "')}
    return [(signature, case) for number, (signature, case) in enumerate(new) if (str(number), signature) in alike]


def entry(options, signature, case):
    quoted = signature.replace("\\", "\\\\").replace('"', '\\"')
    name = "mlx-lm-patched" if options.patched else "mlx-lm"
    return f'signature="{quoted}" impl={name} version=* reason="lacking" expires=2999-12-31\n  trace {case}\n'


def measure(options, fault):
    library = str(HERE / "run") + (" --patched" if options.patched else "")
    begin, seed, size, cases, new, lacking = time.monotonic(), options.seed, FIRST_ROUND, 0, [], []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        suite, known = folder / "nothing.cases", folder / "known.txt"
        suite.write_text(NOTHING)
        known.write_text((HERE / "known_failures.txt").read_text())
        while not new and time.monotonic() - begin < options.minutes * 60:
            if fault is None:
                report = gate(options, library, suite, known, "--fuzz-time", f"{options.minutes}m", "--seed", str(seed))
                lacking, cases = failures(report), sum(campaign["cases"] for campaign in report["summary"]["campaigns"])
                break
            report = gate(options, f"{library} --fault {fault}", suite, known, "--fuzz-cases", str(size), "--seed", str(seed),
                          "--stop-at-new")
            new, cases = failures(report), cases + sum(campaign["cases"] for campaign in report["summary"]["campaigns"])
            lacks = fails_without(options, library, new, folder) if new else []
            if lacks:
                known.write_text(known.read_text() + "".join(entry(options, *failure) for failure in lacks))
                lacking += lacks
                new = [failure for failure in new if failure not in lacks]
            else:
                seed, size = seed + 1, size * 3
    notes = [note for note in report["summary"]["notes"] if note.startswith("failing cases")]
    return {"fault": fault or "(none)", "patched": options.patched, "found": bool(new), "seconds": round(time.monotonic() - begin),
            "cases": cases, "new": new, "lacking": lacking, "notes": notes}


def table(paths):
    """Seconds to the first failure that is new, unpatched and patched; two faults in a row."""
    lines = [json.loads(line) for path in paths for line in pathlib.Path(path).read_text().splitlines()]
    of = {(line["fault"], line["patched"]): line for line in lines}

    def cells(fault):
        shown = [of.get((fault, patched)) for patched in (False, True)]
        return [f"`{fault}`", *("-" if line is None else f"{line['seconds']} s" if line["found"] else f"not in {line['seconds']} s"
                                for line in shown)]
    rows = [cells(fault) for fault in faults() if (fault, False) in of or (fault, True) in of]
    half = (len(rows) + 1) // 2
    print("| fault | unpatched | patched " * 2 + "|\n" + "|---" * 6 + "|")
    for left, right in zip(rows[:half], rows[half:] + [[""] * 3]):
        print("| " + " | ".join(left + right) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcheck", nargs="?")
    parser.add_argument("names", nargs="*", help="faults; (none): the library as it is")
    parser.add_argument("--patched", action="store_true")
    parser.add_argument("--minutes", type=float, default=10, help="begin no round after them")
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", metavar="FILE", nargs="+")
    options = parser.parse_intermixed_args()
    if options.table:
        return table(options.table)
    if not options.kvcheck:
        parser.error("KVCHECK is missing")
    names = [None if name == "(none)" else name for name in options.names] or [None, *faults()]
    unknown = [name for name in names if name and name not in faults()]
    if unknown:
        parser.error(f"no fault {', '.join(unknown)}")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = []
        for done in pool.map(lambda name: measure(options, name), names):
            print(json.dumps(done), flush=True)
            found.append(done)
    with_fault = [done for done in found if done["fault"] != "(none)"]
    print(f"{sum(done['found'] for done in with_fault)} of {len(with_fault)} faults reported as new", file=sys.stderr)


main()
