"""The table of agreement: the trained model over caches of every format, `kvcheck agree` once a format, as many at a time as
there are processors to give.

    agreement.py KVCHECK [--format FORMAT]... [--layout LAYOUT]... [--batch N] [--context N] [--positions N] [-j N] [--json FILE]

Without --format: those that kvcheck agree takes by itself, one of each kind that engines deploy. --format '*' takes every
format of the build whose rows fit the model and are coded one by one. --json: one report of all, as `kvcheck agree --json`
writes it. Nothing is timed but the whole, since runs share the machine; no figure depends on -j.

Prints a Markdown table. Exit codes are kvcheck's: 2 where a question could not be put, else 1 where a format failed, else 3
where one proved nothing.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

MODEL = pathlib.Path(__file__).resolve().parents[2] / "golden/model"
PASSED, FAILED, REFUSED, MISTRUSTED = 0, 1, 2, 3
COLUMNS = ("format", "layout", "bits", "bytes per token", "top-1 %", "KL mean", "KL 99 %", "KL max", "perplexity", "single top-1 %",
           "verdict", "flips", "excused", "explained", "used", "noise")


def agree(kvcheck, arguments):
    """(exit code, report) of kvcheck agree; a refusal ends everything."""
    command = [kvcheck, "agree", "--model", MODEL, "--text", MODEL / "held_out.txt", "--no-times", "--json", "-", *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode not in (PASSED, FAILED, MISTRUSTED):
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stderr}")
    return done.returncode, json.loads(done.stdout)


def text_of(storage):
    return storage["k"] if storage["k"] == storage["v"] else f"{storage['k']},{storage['v']}"


def storages_of(kvcheck, formats, layouts):
    """(format, layout) of all that is to be run, by kvcheck's own choice: the shortest run that names them."""
    asked = [word for name in formats for word in ("--format", name)] + [word for name in layouts for word in ("--layout", name)]
    _, report = agree(kvcheck, ["--positions", 1, "--context", 1, "-j", 1, *asked])
    return [(text_of(storage), storage["layout"]) for storage in report["storages"]]


def row_of(storage):
    quality = storage["quality"]

    def percent(figures):
        return f"{100 * figures['top1']['value']:.2f}"

    def figure(value):
        return f"{value:.3g}" if isinstance(value, (int, float)) else str(value)

    single = storage["single"]
    return [text_of(storage), storage["layout"], f"{storage['bits_per_element']:g}", f"{storage['bytes_per_token']:.1f}", percent(quality),
            figure(quality["kl_mean"]["value"]), figure(quality["kl_99"]["value"]), figure(quality["kl_max"]),
            f"{quality['perplexity_ratio']['value']:.4f}", percent(single) if single else "", storage["outcome"],
            str(len(storage["flips"])), str(storage["excused"]), figure(storage["propagated"]["median"]),
            figure(storage["propagated"]["share_used"]),
            figure(max(noise["largest_logit_change"] for noise in storage["noise"]))]


def merged(reports):
    """One report of several about one question."""
    head = {key: value for key, value in reports[0].items() if key not in ("storages", "outcome")}
    for report in reports:
        if any(report[key] != value for key, value in head.items()):
            raise RuntimeError("reports of different questions")
    outcomes = [report["outcome"] for report in reports]
    worst = next(name for name in ("FAIL", "MISTRUSTED", "PASS") if name in outcomes)
    return {**head, "outcome": worst, "storages": [storage for report in reports for storage in report["storages"]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcheck")
    parser.add_argument("--format", action="append", default=[])
    parser.add_argument("--layout", action="append", default=[])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--positions", type=int, default=20000)
    parser.add_argument("-j", type=int, default=os.cpu_count(), help="formats at a time, a thread each")
    parser.add_argument("--json", type=pathlib.Path)
    chosen = parser.parse_args()
    start = time.monotonic()
    options = ["--batch", chosen.batch, "--context", chosen.context, "--positions", chosen.positions, "-j", 1]
    codes, reports = [], []
    try:
        storages = storages_of(chosen.kvcheck, chosen.format, chosen.layout)
        print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
        with concurrent.futures.ThreadPoolExecutor(chosen.j) as pool:
            running = [pool.submit(agree, chosen.kvcheck, [*options, "--format", name, "--layout", layout])
                       for name, layout in storages]
            try:
                for one in running:
                    code, report = one.result()
                    codes.append(code)
                    reports.append(report)
                    print("| " + " | ".join(row_of(report["storages"][0])) + " |", flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        report = merged(reports)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return REFUSED
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    for storage in report["storages"]:
        if storage["outcome"] != "PASS":
            print(f"\n{storage['outcome']} {text_of(storage)} {storage['layout']}: {storage['why']}")
    print(f"\n{report['outcome']}: {len(storages)} storages, {report['positions']} positions each in {report['sequences']} sequences of up to "
          f"{report['context']} tokens, batch {report['batch']}; {time.monotonic() - start:.0f} s, {chosen.j} at a time")
    return next(code for code in (FAILED, MISTRUSTED, PASSED) if code in codes)


if __name__ == "__main__":
    sys.exit(main())
