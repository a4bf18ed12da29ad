#!/usr/bin/env python3
"""Attention over stored K and V beside other libraries, and beside the best read and the best arithmetic of this machine.

usage: peers.py ATTENTION_SERVER [--cases decode,layers,layout,prefill,batch] [--tokens 1024,4096,16384,32768]
                [--prefill 512,2048] [--cold MIB] [--peers torch,ggml,openvino,mlx] [--rounds 9] [--threads 2] [--burst 0.06]
                [--patience 180] [--json FILE [--resume]] [--plot FILE.png] [--python [PEER=]PATH]...

Peers run in bench/attention/venv (tools/adapters/make_venv.sh bench/attention), else in the Python that runs this, or in
those that --python names. One that is not there is left out with a line; `--peers none` measures ours alone.

32 query heads, 8 key/value heads, 128 channels, one sequence but for `batch`:
  decode   one query: ours in every kind of format; torch with the query heads of a key/value head folded into queries, which
           is its best; ggml's flash_attn_ext; OpenVINO's attention with state; MLX up to 4096 tokens, where it takes 0.02 s
  layers   the same, but each call takes the next one of as many layers as have --cold MiB together, by default twice the LLC
           of the processors: a model decodes so, and finds no layer in a cache, however large that is; the reads go on
           through as much memory, too. For OpenVINO a layer is a request of its own
  layout   one query: head-major against token-major
  prefill  as many queries as tokens, all visible and causal: ours, and torch in f32, with enable_gqa and with K and V repeated
  batch    one query of four sequences in one call, against four calls

K and V lie in memory as each library's callers have it: ours, and the reads, in huge pages where the system grants them, as
kvcheck's caches do; torch's f32 as NumPy allocates it, which asks for them, too; others in the pages of their own allocators.

Each library is a process of its own (peer_server.py, attention_server), set up once for a case. Before anything is timed each
computes a small problem, which is compared with attention in doubles; one that is off is not timed. Exit status: 0; 1 where
a library was off or its process ended; 2 wrong usage.
Rounds are interleaved over all: a round reads as many bytes as each format has, measures the FMA peak, and runs each library for
--burst seconds, of which the median counts, after as many runs that do not. What another program disturbed is measured again,
for --patience seconds in all. Shares and ratios are made within a round, and their medians and quartiles printed.

--json writes each case as it ends, with the seconds of every round; --resume takes from there what was measured with the same
options. --plot draws shares over contexts (peer_plot.py draws them from such a file).
"""
import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

import peer_report
from peer_cases import KINDS, cases_of, key_of
from peer_machine import Quiet, enough_to_be_cold, machine

FOLDER = pathlib.Path(__file__).resolve().parent
PEERS = ("torch", "ggml", "openvino", "mlx")
MOST_RUNS = 300
CHECKED = 4 << 20  # bytes of a small problem's layers: several of every format
# A wrong head, mask or layout gives an error as large as the values; 8 bits of q, K or V one of a hundredth.
WRONG = 0.1


class Refused(Exception):
    """The answer of a server that cannot do what it was asked for."""


class Ended(Refused):
    """Its process has ended."""


class Server:
    """A process that answers each line by one. Its methods raise Refused."""

    def __init__(self, command, greets):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        stderr=subprocess.DEVNULL)
        if greets:
            self.answer("the start")

    def ask(self, *words):
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
        except OSError:
            raise Ended("its process has ended") from None
        return self.answer(words[0])

    def answer(self, what):
        line = self.process.stdout.readline()
        if not line:
            raise Ended(f"its process ended at {what}")
        word, _, rest = line.strip().partition(" ")
        if word != "ok":
            raise Refused(rest)
        return rest

    def run(self, name, runs):
        return [float(word) for word in self.ask("run", name, runs).split()]

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it has ended
        self.process.wait()


# ----------------------------------------------------------------------------- measurement


def setup_words(entry):
    return [f"{key}={value}" for key, value in entry.items() if key != "server"]


class Bench:
    def __init__(self, options):
        self.options = options
        self.servers = {name: Server([options.attention_server, str(options.threads)], greets=False)
                        for name in ("own", "probe")}
        self.quiet = Quiet(options.patience)
        self.versions = {}
        self.failed = False  # something ended, or computed something else than attention
        self.errors = {}  # of small problems, by server and setup
        for peer in options.peers:
            try:
                python = options.python.get(peer, options.python[""])
                server = Server([python, str(FOLDER / "peer_server.py"), peer, str(options.threads)], greets=True)
                self.versions[peer] = server.ask("version")
                self.servers[peer] = server
            except (Refused, OSError) as error:
                print(f"{peer} is not measured: {error} (tools/adapters/make_venv.sh bench/attention)", file=sys.stderr)
        self.quiet.pids += [server.process.pid for server in self.servers.values()]

    def close(self):
        for server in self.servers.values():
            server.close()

    def leave_out(self, label, entry, error):
        print(f"{label} is not measured: {error}", file=sys.stderr)
        if isinstance(error, Ended):
            self.failed = True
            server = self.servers.pop(entry["server"])
            self.quiet.pids.remove(server.process.pid)
            server.close()

    def check(self, entry):
        """The error on a small problem of the same kind; refused where it is no rounding."""
        size = {"tokens": 129, "queries": 129} if entry["queries"] > 1 else {"tokens": 257}
        server = self.servers[entry["server"]]
        words = setup_words({**entry, **size, "cold": min(entry.get("cold", 0), CHECKED)})
        key = (entry["server"], *words)
        if key not in self.errors:
            server.ask("setup", "small", *words)
            server.run("small", 1)
            self.errors[key] = float(server.ask("check", "small"))
        if not self.errors[key] <= WRONG:
            self.failed = True
            raise Refused(f"its values are off by {self.errors[key]:.2g} of their size")
        return self.errors[key]

    def start(self, entries):
        """What is measured of each entry that its server can do."""
        burst = self.options.burst
        errors, started = {}, {}
        for label, entry in entries.items():
            try:
                if entry["server"] in self.servers:
                    errors[label] = self.check(entry)
            except Refused as error:
                self.leave_out(label, entry, error)
        self.free()  # the small ones
        for label, error in errors.items():
            server = entries[label]["server"]
            name = f"e{len(started)}"
            try:
                stored = int(self.servers[server].ask("setup", name, *setup_words(entries[label])))
                once = min(self.servers[server].run(name, 3))
                started[label] = {"name": name, "server": server, "bytes": stored, "error": error, "seconds": [],
                                  "runs": min(MOST_RUNS, max(1, round(burst / once)))}
            except Refused as refusal:
                self.leave_out(label, entries[label], refusal)
            except KeyError:
                pass  # its server ended at an earlier one
        return started

    def free(self):
        for server in self.servers.values():
            server.ask("free")

    def measure(self, case, entries):
        started = self.start(entries)
        probe = self.servers["probe"]
        f16_bytes = 2 * 8 * 128 * 2 * case["tokens"]
        reads = {size: [] for size in sorted({f16_bytes, *(entry["bytes"] for entry in started.values())})}
        for size in reads:
            probe.ask("setup", f"read{size}", "kind=read", f"bytes={size}", f"cold={case.get('cold', 0)}")
        flops = float(probe.ask("setup", "fma", "kind=fma"))
        gflops, others = [], []

        def best_of(name):
            """Least seconds of a probe, over a quarter of a burst."""
            once = min(probe.run(name, 4))
            return min([once, *probe.run(name, min(MOST_RUNS, max(1, round(self.options.burst / 4 / once))))])

        def quietly(measure):
            value, cores = self.quiet.run(measure)
            others.append(cores)
            return value

        def burst(entry):
            # As many warm-up runs as timed ones: what others evicted from a large LLC comes to stay again only after a
            # dozen runs.
            seconds = quietly(lambda: self.servers[entry["server"]].run(entry["name"], 2 * entry["runs"]))
            return statistics.median(seconds[entry["runs"]:])

        for _ in range(self.options.rounds):
            gflops.append(flops / quietly(lambda: best_of("fma")) / 1e9)
            for size, seconds in reads.items():
                seconds.append(quietly(lambda size=size: best_of(f"read{size}")))
            for label, entry in list(started.items()):
                if entry["server"] not in self.servers:  # it ended at an earlier one
                    del started[label]
                    continue
                try:
                    entry["seconds"].append(burst(entry))
                except Refused as error:
                    self.leave_out(label, entry, error)
                    del started[label]
        started = {label: entry for label, entry in started.items() if entry["server"] in self.servers}
        self.free()
        for entry in started.values():
            del entry["name"]
        return {"others_cores": statistics.fmean(others), "gflops": gflops, "f16_bytes": f16_bytes, "entries": started,
                "reads": {str(size): seconds for size, seconds in reads.items()}}


# ------------------------------------------------------------------------------------ main


def mebibytes(text):
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value << 20


def parse_options():
    def numbers(text):
        values = [int(word) for word in text.split(",")]
        if min(values) < 1:
            raise ValueError(text)
        return values

    def words(known):
        def parse(text):
            chosen = [] if text == "none" else text.split(",")
            for word in chosen:
                if word not in known:
                    raise argparse.ArgumentTypeError(f"{word} is none of {', '.join(known)}")
            return chosen
        return parse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attention_server", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--cases", type=words(KINDS), default=KINDS)
    parser.add_argument("--tokens", type=numbers, default=[1024, 4096, 16384, 32768])
    parser.add_argument("--prefill", type=numbers, default=[512, 2048], help="tokens")
    parser.add_argument("--cold", type=mebibytes, metavar="MIB",
                        help="of the layers of one entry, together; a case has some fifteen entries")
    parser.add_argument("--peers", type=words(PEERS), default=PEERS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--burst", type=float, default=0.06, metavar="SECONDS", help="of a library in a round")
    parser.add_argument("--patience", type=float, default=180, metavar="SECONDS",
                        help="spent on waiting for other programs, in all; 0: no pause at all")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE.png")
    parser.add_argument("--python", action="append", default=[], metavar="[PEER=]PATH")
    options = parser.parse_args()
    if not os.access(options.attention_server, os.X_OK):
        parser.error(f"{options.attention_server} is no program: build the target attention_server")
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    if options.cold is None:
        options.cold = enough_to_be_cold(options.threads)
    if options.resume and options.json is None:
        parser.error("--resume needs --json FILE")
    venv = FOLDER / "venv/bin/python"
    pythons = {"": str(venv if venv.exists() else sys.executable)}
    for text in options.python:
        peer, equal, path = text.partition("=")
        pythons.update({peer: path} if equal else {"": text})
    options.python = pythons
    return options


def plot(options, results):
    lines = "".join(json.dumps(result) + "\n" for result in results)
    done = subprocess.run([options.python[""], str(FOLDER / "peer_plot.py"), "-", str(options.plot)], input=lines, text=True,
                          check=False)
    return done.returncode


def main():
    options = parse_options()
    results = {}
    if options.resume and options.json.exists():
        results = {key_of(line): line for line in map(json.loads, options.json.read_text().splitlines())}
    bench = Bench(options)
    about = {
        "threads": options.threads,
        "rounds": options.rounds,
        "burst": options.burst,
        "patience": options.patience,
        "server": hashlib.sha256(pathlib.Path(options.attention_server).read_bytes()).hexdigest()[:16],
        "machine": machine(),
        "versions": bench.versions,
    }
    with open(options.json or os.devnull, "a" if options.resume else "w", encoding="utf-8") as file:
        for case, entries in cases_of(options.cases, options.tokens, options.prefill, options.cold):
            if {**case, **about}.items() <= results.get(key_of(case), {}).items():
                continue
            print(f"measuring {peer_report.title(case)}", file=sys.stderr)
            results[key_of(case)] = {**case, **about, **bench.measure(case, entries)}
            file.write(json.dumps(results[key_of(case)]) + "\n")
            file.flush()
    bench.close()
    results = [results[key] for key in sorted(results)]
    peer_report.print_report(results)
    status = 1 if bench.failed else 0
    if options.plot is not None:
        status = plot(options, results) or status
    sys.exit(status)


if __name__ == "__main__":
    main()
