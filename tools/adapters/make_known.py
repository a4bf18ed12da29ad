#!/usr/bin/env python3
"""Writes the known failures of an adapter's library: make_known.py NAME KVCHECK --expires YYYY-MM-DD [--minutes M] [--seeds N].

Runs `kvcheck gate --write-known` on the adapter, from seed to seed past what it knows already, until a seed shows nothing new
or there are no more of them. Where the adapter can repair the causes one by one (patched*.py), each trace is judged again under
each repair alone, and the entry gets the name of the one that makes it pass; else FINDINGS.md is its reason, or what stood in the
file that --add goes on from, whose comments stay too. Writes NAME/known_failures.txt, with the versions as the pin has them and
anything behind.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
UNSEEN = "not looked into"  # the reason that kvcheck writes
HEAD = "# Written by make_known.py; what the lines mean: tools/suites/README.md."


def command(name, *options):
    return " ".join([str(HERE / name / "run"), *options])


def gate(kvcheck, implementation, *options):
    """The report of a run; what it found is no error here."""
    done = subprocess.run([kvcheck, "gate", "--impl", implementation, "-q", "--json", "-", *options],
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"kvcheck gate ended with {done.returncode}")
    return json.loads(done.stdout)


def entries_of(text):
    """[(fields of the line, [trace, ...]), ...]"""
    entries = []
    for line in text.splitlines():
        if line.startswith(" "):
            entries[-1][1].append(line.strip().removeprefix("trace "))
        elif line and not line.startswith("#"):
            fields = {key: (quoted or bare).replace('\\"', '"').replace("\\\\", "\\") for key, quoted, bare in
                      re.findall(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S+))', line)}
            entries.append((fields, []))
    return entries


def repairs_of(name):
    names = []
    for path in sorted((HERE / name).glob("patched*.py")):
        listed = re.search(r"^REPAIRS = \((.*?)\)", path.read_text(), re.S | re.M)
        names += re.findall(r"\w+", listed.group(1))
    return names


def causes_of(kvcheck, name, traces, folder):
    """trace -> the repairs each of which alone makes it pass."""
    suite = folder / "traces.cases"
    lines = []
    for number, trace in enumerate(traces):
        body = trace.replace("; ", "\n") if trace.startswith("cache") else trace
        lines.append(f"case t{number}\nreason known\n{body}\n")
    suite.write_text("\n".join(lines))
    causes = collections.defaultdict(list)
    for repair in [*repairs_of(name), None]:
        option = "--patched" if repair is None else f"--repair {repair}"
        report = gate(kvcheck, command(name, option), "--suite", str(suite), "--fuzz-cases", "0")
        for result in report["cases"]:
            if result["outcome"] in ("PASS", "UNSUPPORTED"):
                causes[traces[int(result["name"].rpartition("/t")[2])]].append(repair)
        print(f"{option}: done", file=sys.stderr)
    return causes


def reason_of(repairs, given=UNSEEN):
    names = [repair for repair in repairs if repair]
    if names:
        return "FINDINGS.md; repaired by " + ", ".join(names)
    if repairs:
        return "FINDINGS.md; several causes"
    return "FINDINGS.md" if given == UNSEEN else given


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(path, head, entries, causes, expires):
    found = collections.OrderedDict()
    for fields, traces in entries:
        for trace in traces:
            key = (fields["signature"], fields["impl"], fields["version"].split(" ")[0],
                   reason_of(causes.get(trace, []), fields["reason"]))
            found.setdefault(key, []).append(trace)
    lines = list(head)
    for (signature, implementation, version, reason), traces in sorted(found.items()):
        lines.append(f"signature={quoted(signature)} impl={implementation} version={quoted(version + '*')} "
                     f"reason={quoted(reason)} expires={expires}")
        lines += [f"  trace {trace}" for trace in sorted(traces)]
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("kvcheck")
    parser.add_argument("--expires", required=True)
    parser.add_argument("--minutes", type=float, default=10, help="of drawing, for each seed")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--shrink-cases", type=int, default=32)
    parser.add_argument("--add", action="store_true", help="go on from the file that is there")
    options = parser.parse_args()
    target = HERE / options.name / "known_failures.txt"
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        known = folder / "known.txt"
        known.write_text(target.read_text() if options.add else "")
        head = [line for line in known.read_text().splitlines() if line.startswith("#")] or [HEAD]
        for seed in range(1, options.seeds + 1):
            before = known.read_text()
            gate(options.kvcheck, command(options.name), "--known", str(known), "--write-known", str(known),
                 "--expires", options.expires, "--shrink-cases", str(options.shrink_cases), "--seed", str(seed),
                 "--fuzz-time", f"{options.minutes}m")
            added = sum(len(traces) for _, traces in entries_of(known.read_text()))
            print(f"seed {seed}: {added} traces", file=sys.stderr)
            if known.read_text() == before:
                break
        entries = entries_of(known.read_text())
        traces = [trace for _, listed in entries for trace in listed]
        causes = causes_of(options.kvcheck, options.name, traces, folder) if repairs_of(options.name) else {}
        write(target, head, entries, causes, options.expires)


main()
