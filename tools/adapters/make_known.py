#!/usr/bin/env python3
"""Writes the known failures of an adapter's library: make_known.py NAME KVCHECK --expires YYYY-MM-DD [--minutes M] [--seeds N].

Runs `kvcheck gate --write-known` on the adapter, from seed to seed past what it knows already, the suites with the first, until
a seed shows nothing new or there are no more of them; the file is written after each. Where the adapter can repair the causes
one by one (patched*.py), each trace is judged again under each repair alone, and the entry gets the names of those under which it
no longer fails so; else FINDINGS.md is its reason, or what stood in the file that --add goes on from, whose comments stay too. Writes
NAME/known_failures.txt, with the versions as the pin has them and anything behind, and says in its head which seeds it was made of and
what the last of them still found.
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


UNLABELLED = "not looked into"  # the reason that the gate writes


def command(name, *options):
    return " ".join([str(HERE / name / "run"), *options])


def gate(kvcheck, implementation, *options):
    """The report of a run; what it found is no error here."""
    done = subprocess.run([kvcheck, "gate", "--impl", implementation, "-q", "--json", "-", "-j", "1", *options],
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


def suite_of(traces, folder):
    suite = folder / "traces.cases"
    suite.write_text("\n".join(f"case t{number}\nreason known\n{trace}\n" for number, trace in enumerate(traces)))
    return suite


def of_other_bits(kvcheck, implementation, entries, folder):
    """[(entry's fields, [trace, ...]), ...]: traces of affine formats with other numbers of bits that fail by the same
    signature, one for each that has none yet: forms tell bits apart (tools/campaign/canonical_form.h), and drawing meets
    each of them late."""
    def shape(trace):  # what is left of a form
        return re.sub(r"=(f32|f16|bf16)|:(f32|f16|bf16)|:g\d+|scale=\S+| d[kv]?=\d+|data=\S+", "", trace)
    tried = {}
    for fields, traces in entries:
        there = {shape(trace) for trace in traces}
        for trace in traces:
            for bits in (2, 3, 4, 5, 6, 8):
                other = re.sub(r"affine:\d+:", f"affine:{bits}:", trace)
                if shape(other) not in there:
                    there.add(shape(other))
                    tried[other] = fields
    if not tried:
        return []
    report = gate(kvcheck, implementation, "--suite", str(suite_of(list(tried), folder)), "--fuzz-cases", "0")
    found = collections.defaultdict(list)
    for result in report["cases"]:
        trace = list(tried)[int(result["name"].rpartition("/t")[2])]
        if f'signature "{tried[trace]["signature"]}"' in result["reasons"]:
            found[tried[trace]["signature"]].append(trace)
    print(f"of other bits: {sum(map(len, found.values()))} of {len(tried)} fail alike", file=sys.stderr)
    return [(fields, found[fields["signature"]]) for fields, _ in entries if found[fields["signature"]]]


def causes_of(kvcheck, name, signatures, folder):
    """trace -> the repairs under each of which alone it no longer fails by its signature. signatures: trace -> signature."""
    traces = list(signatures)
    suite = suite_of(traces, folder)
    causes = collections.defaultdict(list)
    for repair in [*repairs_of(name), None]:
        option = "--patched" if repair is None else f"--repair {repair}"
        report = gate(kvcheck, command(name, option), "--suite", str(suite), "--fuzz-cases", "0")
        for result in report["cases"]:
            trace = traces[int(result["name"].rpartition("/t")[2])]
            if f'signature "{signatures[trace]}"' not in result["reasons"]:
                causes[trace].append(repair)
        print(f"{option}: repairs {sum(repair in of for of in causes.values())} of {len(traces)} traces", file=sys.stderr)
    return causes


def reason_of(repairs):
    names = [repair for repair in repairs if repair]
    if names:
        return "FINDINGS.md: " + ", ".join(names)
    return "FINDINGS.md: several causes" if repairs else "FINDINGS.md"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(path, head, entries, causes, expires):
    found = collections.defaultdict(set)
    for fields, traces in entries:
        for trace in traces:
            reason = reason_of(causes[trace]) if trace in causes else fields["reason"]
            found[fields["signature"], fields["impl"], fields["version"].split(" ")[0].rstrip("*"), reason].add(trace)
    lines = [*head]
    for (signature, implementation, version, reason), traces in sorted(found.items()):
        lines.append(f"signature={quoted(signature)} impl={implementation} version={quoted(version + '*')} "
                     f"reason={quoted(reason)} expires={expires}")
        lines += [f"  trace {trace}" for trace in sorted(traces)]
    path.write_text("\n".join(lines) + "\n")


def traces_of(entries):
    return [trace for _, listed in entries for trace in listed]


GENERATED = ("# Written by `make_known.py", "# what the lines mean", "# New traces by seed", "# complete as far", "# not complete:")


def head_of(options, made, complete, text):
    """And the comments that stand in the file that --add goes on from."""
    said = ", ".join(f"seed {seed} {new}" for seed, new in made)
    end = "complete as far as the last of them sees" if complete else "not complete: what is missing fails the gate"
    return [f"# Written by `make_known.py {options.name} KVCHECK --minutes {options.minutes:g} --shrink-cases {options.shrink_cases}`;",
            "# what the lines mean: tools/suites/README.md. A reason names the repairs under each of which alone its traces no longer fail so.",
            f"# New traces by seed, beside those of other numbers of bits: {said};",
            f"# {end}.",
            *(line for line in text.splitlines() if line.startswith("#") and not line.startswith(GENERATED))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("kvcheck")
    parser.add_argument("--expires", required=True)
    parser.add_argument("--minutes", type=float, default=2, help="of drawing, for each seed; shrinking comes on top")
    parser.add_argument("--seeds", type=int, default=4, help="at most so many; 0: only look causes up")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--shrink-cases", type=int, default=32, help="of each signature")
    parser.add_argument("--option", action="append", default=[], help="of the adapter")
    parser.add_argument("--out", type=pathlib.Path, help="in place of NAME/known_failures.txt")
    parser.add_argument("--add", action="store_true", help="go on from the file that is there, without the suites")
    options = parser.parse_args()
    target = options.out or HERE / options.name / "known_failures.txt"
    with tempfile.TemporaryDirectory() as made_in:
        folder = pathlib.Path(made_in)
        known, nothing = folder / "known.txt", folder / "nothing.cases"
        nothing.write_text("case nothing\nreason a suite has a case\ncache k=f32 dk=8 data=tokens:1; new A\n")
        begun = target.read_text() if options.add else ""
        known.write_text(begun)
        made = [(int(seed), int(new)) for seed, new in re.findall(r"\bseed (\d+) (\d+)", known.read_text())]
        entries = entries_of(known.read_text())
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            before = len(traces_of(entries_of(known.read_text())))
            suites = ["--suite", str(nothing)] if made else []
            gate(options.kvcheck, command(options.name, *options.option), "--known", str(known), "--write-known", str(known), *suites,
                 "--expires", options.expires, "--shrink-cases", str(options.shrink_cases), "--seed", str(seed),
                 "--fuzz-time", f"{options.minutes}m")
            entries = entries_of(known.read_text())
            made.append((seed, len(traces_of(entries)) - before))
            print(f"seed {seed}: {made[-1][1]} new traces, {before + made[-1][1]} in all", file=sys.stderr)
            write(target, head_of(options, made, complete=not made[-1][1], text=begun), entries, {}, options.expires)
            if not made[-1][1]:
                break
        entries += of_other_bits(options.kvcheck, command(options.name, *options.option), entries, folder)
        new = {trace: fields["signature"] for fields, traces in entries for trace in traces if fields["reason"] == UNLABELLED}
        causes = causes_of(options.kvcheck, options.name, new, folder) if new and repairs_of(options.name) else {}
        for trace in new:
            causes.setdefault(trace, [])
        write(target, head_of(options, made, complete=not (made and made[-1][1]), text=begun), entries, causes, options.expires)


main()
