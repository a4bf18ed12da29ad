"""Operations a second on the caches of mlx-lm: kvcheck through the pipe, each answer judged, beside Hypothesis on the bare
library, in turns.

    python3 bench/adapters/throughput.py KVCHECK [--rounds N] [--seconds S]

Needs tools/adapters/mlx_lm/venv (tools/adapters/make_venv.sh mlx_lm) with hypothesis in it (venv/bin/pip install
hypothesis==6.170.0).

kvcheck: drawn traces of new, append, trim, filter, extract, extend and drop on KVCache, RotatingKVCache and their batches
(`--operations` of the adapter), patched so that no failure ends a trace. observe=each shows and judges every state,
observe=last the states at the end. What a command needs until its first case is judged, the imports of the library above
all, is measured apart, by runs of two cases, and taken off.

Hypothesis: a RuleBasedStateMachine per class with the same operations, 50 steps an example, each result evaluated, nothing
compared with anything; shapes, windows and steps of capacity as kvcheck draws them (what it drew: 77 caches of 100 have one
row, 75 are linear). An exception of the library ends nothing: the machine goes on with a new cache. Operations that reach
the library are counted, new caches among them; the import is not timed.

A rate per processor second counts the user and system time of all processes of a side: a machine that does other work as
well changes it less. Ratios are medians over the rounds of what one round measured.
"""
import argparse
import ctypes
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ADAPTER = REPOSITORY / "tools/adapters/mlx_lm"
PYTHON = ADAPTER / "venv/bin/python"
OPERATIONS = "append,trim,filter,extract,extend"
KINDS = {"observe=each": ("each", 1), "observe=last": ("last", 1), "observe=last -j 2": ("last", 2)}
PR_SET_CHILD_SUBREAPER = 36


def hypothesis_rate(seconds):
    """Prints operations, seconds and processor seconds of all classes in turns. Runs in mlx-lm's environment."""
    import mlx.core as mx
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
    from mlx_lm.models import cache as library

    mx.set_default_device(mx.cpu)
    done = 0
    counts = st.sampled_from([1, 1, 1, 2, 3, 4, 6, 8])
    windows = st.integers(1, 6)
    steps = st.sampled_from([1, 2, 3, 4])

    class Machine(RuleBasedStateMachine):
        @initialize(step=steps, window=windows, heads=st.integers(1, 2))
        def begin(self, step, window, heads):
            self.window, self.heads = window, heads
            self.kind.step = step
            self.again()

        def again(self):
            self.cache, self.rows = self.new()

        def columns(self, rows, n):
            return mx.ones((rows, self.heads, n, 8))

        def do(self, call):
            """One operation of the library, with what it computes."""
            nonlocal done
            done += 1
            try:
                mx.eval(call())
            except Exception:
                self.again()

        @rule(n=counts)
        def append(self, n):
            self.do(lambda: self.cache.update_and_fetch(self.columns(self.rows, n), self.columns(self.rows, n)))

        @rule(n=counts)
        def append_more(self, n):
            self.append(n)

        @rule(n=st.integers(1, 4))
        def trim(self, n):
            self.do(lambda: library.trim_prompt_cache([self.cache], n))

    class Batch(Machine):
        @rule(data=st.data())
        def filter(self, data):
            if self.rows > 1 and self.cache.keys is not None:
                kept = data.draw(st.lists(st.integers(0, self.rows - 1), min_size=1, max_size=3))

                def call():
                    self.cache.filter(mx.array(kept))
                    self.rows = len(kept)
                    return self.cache.keys, self.cache.values
                self.do(call)

        @rule(data=st.data())
        def extract(self, data):
            if self.cache.keys is not None:
                row = data.draw(st.integers(0, self.rows - 1))

                def call():
                    taken = self.cache.extract(row)
                    return taken.keys, taken.values
                self.do(call)

        @rule()
        def extend(self):
            if self.cache.keys is not None and self.rows <= 4:
                other, rows = self.new()
                self.do(lambda: other.update_and_fetch(self.columns(rows, 2), self.columns(rows, 2)))

                def call():
                    self.cache.extend(other)
                    self.rows += rows
                    return self.cache.keys, self.cache.values
                self.do(call)

    def machine(base, kind, rows, make):
        def new(self):
            nonlocal done
            done += 1
            return make(self), rows
        return type("Generated", (base,), {"kind": kind, "new": new})

    one, ring = library.KVCache, library.RotatingKVCache
    batch, rings = library.BatchKVCache, library.BatchRotatingKVCache
    mix = [(6, machine(Machine, one, 1, lambda m: one())),
           (2, machine(Machine, ring, 1, lambda m: ring(max_size=m.window))),
           (2, machine(Batch, batch, 2, lambda m: batch([0, 1]))),
           (1, machine(Batch, rings, 2, lambda m: rings(m.window, [0, 1])))]
    begin, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        for examples, each in mix:
            run_state_machine_as_test(each, settings=settings(
                max_examples=examples, stateful_step_count=50, deadline=None, database=None, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck)))
    print(done, time.perf_counter() - begin, time.process_time() - used)


def processor_seconds():
    """Of all processes that have ended, those too that were left to this one when their parent ended."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            return used.ru_utime + used.ru_stime


def fuzz(tool, folder, limit, observe, workers):
    """(operations judged, seconds, processor seconds) of the whole command."""
    report = pathlib.Path(folder) / "report.json"
    used, begin = processor_seconds(), time.perf_counter()
    done = subprocess.run(
        [tool, "fuzz", "--impl", f"{ADAPTER}/run --patched --operations={OPERATIONS}", "--layout", "linear", "--layout",
         "ring", "--format", "f32", "--keep-going", "--quiet", "--out", folder, "--json", str(report), "--observe",
         observe, "-j", str(workers), *limit], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"kvcheck fuzz --observe {observe} {' '.join(limit)} ended with {done.returncode}, so there is no clean "
                 f"run to time\n{done.stderr}")
    summary = json.loads(report.read_text())["summary"]
    report.unlink()
    return summary["campaigns"][0]["operations"], seconds, processor_seconds() - used


def beside(tool, rounds, seconds):
    """{name: [(a second, a processor second)]}, one entry a round."""
    rates = {"Hypothesis": [], **{name: [] for name in KINDS}}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            bare = subprocess.run([PYTHON, __file__, "--hypothesis", str(seconds)], capture_output=True, text=True)
            if bare.returncode:
                sys.exit(f"Hypothesis did not run:\n{bare.stderr}")
            operations, wall, used = map(float, bare.stdout.split())
            rates["Hypothesis"].append((operations / wall, operations / used))
            for name, (observe, workers) in KINDS.items():
                start = fuzz(tool, folder, ["--cases", "2"], observe, workers)
                run = fuzz(tool, folder, ["--time", f"{seconds}s", "--seed", str(number + 1)], observe, workers)
                operations, wall, used = (a - b for a, b in zip(run, start))
                rates[name].append((operations / wall, operations / used))
            print(f"round {number + 1} of {rounds}: " + ", ".join(
                f"{name} {values[-1][0]:.0f}" for name, values in rates.items()), file=sys.stderr)
    return rates


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("tool", help="the built kvcheck")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=20)
    arguments = parser.parse_args()
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("processor time of the adapters cannot be counted here: PR_SET_CHILD_SUBREAPER is not there")
    rates = beside(arguments.tool, arguments.rounds, arguments.seconds)
    print(f"| {arguments.rounds} rounds of {arguments.seconds} s | operations a second, median | least | most | ratio to "
          "Hypothesis | a processor second, median | ratio to Hypothesis |")
    print("|---|---|---|---|---|---|---|")

    def ratio(name, other, column):
        return statistics.median(a[column] / b[column] for a, b in zip(rates[name], rates[other]))

    for name, values in rates.items():
        walls, used = zip(*values)
        print(f"| {name} | {statistics.median(walls):.0f} | {min(walls):.0f} | {max(walls):.0f} "
              f"| {ratio(name, 'Hypothesis', 0):.2f} | {statistics.median(used):.0f} "
              f"| {ratio(name, 'Hypothesis', 1):.2f} |")
    print(f"\nobserve=last, -j 2 over -j 1: {ratio('observe=last -j 2', 'observe=last', 0):.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hypothesis"]:
        hypothesis_rate(float(sys.argv[2]))
    else:
        main()
