#!/usr/bin/env python3
"""What a call from Python costs over the same call from C++: one attention, judged from both in turns.

    python3 bench/python/judge_cost.py build/release/bench/python/judge_calls [--elements 1e7] [--rounds 5] [--threads 1]

Needs the package for Python (tools/python/install.sh), built from the same sources. Both draw the same inputs and hold the
same output, and each is judged in a process of its own; the times are of the call alone. The processor's time is what the
ratio is made of, round by round, since other work on the machine does not make it longer. Memory: by how much the peak of
the process grew while it judged, inputs and output in memory before.
"""
import argparse
import statistics
import subprocess
import sys
import time

HEADS, KEYS, HEAD_DIM = 8, 64, 128


def peak_mib():
    """The peak of memory since the last call of this, which begins a new one (Linux)."""
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
    with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")
    return peak


def serve(text, plan, threads):
    """The Python side, in a process of its own: as judge_calls.cc."""
    import kvcheck
    case = kvcheck.cases.draw(text)
    out = case.answer(plan=plan, threads=threads)["out"]
    for _ in sys.stdin:
        peak_mib()
        before = peak_mib()  # what is there now
        start, processor = time.perf_counter(), time.process_time()
        verdict = kvcheck.judge_attention(out, case.q, case.k, case.v, plan=plan, threads=threads)
        used, clock = time.process_time() - processor, time.perf_counter() - start
        grown = peak_mib() - before
        print(verdict.outcome, clock, used, grown, flush=True)


class Side:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def judge(self):
        """(seconds of the clock, of the processor, MiB)."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        outcome, *numbers = self.process.stdout.readline().split() or ["no answer"]
        if outcome != "PASS":
            sys.exit(f"{self.process.args[0]}: {outcome}")
        return [float(number) for number in numbers]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judge_calls")
    parser.add_argument("--elements", type=float, default=1e7)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    rows = max(1, round(arguments.elements / HEADS / HEAD_DIM))
    text = (f"attention hq={HEADS} hkv={HEADS} l={rows} t={KEYS} d={HEAD_DIM} q=f32 k=f32 v=f32 out=f32 mask=none "
            "data=gauss:1")
    words = [text, "base=plain_f32", str(arguments.threads)]
    sides = {"C++": Side([arguments.judge_calls, *words]), "Python": Side([sys.executable, __file__, "--serve", *words])}
    size = rows * HEADS * HEAD_DIM * 4 / 2**20
    print(f"{rows * HEADS * HEAD_DIM} elements, {arguments.threads} threads, output of {size:.0f} MiB\n")
    print("| round | C++ s | Python s | C++ processor s | Python processor s | Python / C++ |")
    print("|---|---|---|---|---|---|")
    ratios, grown = [], {}
    for number in range(arguments.rounds):
        # Who begins changes from round to round.
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        said = {name: sides[name].judge() for name in order}
        ratios.append(said["Python"][1] / said["C++"][1])
        grown = {name: max(grown.get(name, 0), said[name][2]) for name in sides}
        print(f"| {number + 1} | " + " | ".join(f"{said[name][part]:.3f}" for part in (0, 1) for name in ("C++", "Python"))
              + f" | {ratios[-1]:.4f} |", flush=True)
    print(f"\nmedian of Python / C++: {statistics.median(ratios):.4f}; peak of memory grew by "
          + ", ".join(f"{grown[name]:.1f} MiB ({name})" for name in sides))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
