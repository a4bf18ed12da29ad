#!/usr/bin/env python3
"""What judging attention costs, beside something else that takes turns with it.

    python3 bench/python/judge_cost.py build/release/bench/python/judge_calls --beside numpy \\
        [--shape b1,batch,prefill,decode_32k,decode_128k] [--case CASE] [--plan NAME] [--rule bound] [--rounds 5]
    python3 bench/python/judge_cost.py build/release/bench/python/judge_calls [--elements 1e7] [--rounds 5] [--threads 1]

With --beside numpy: one thread judges an output in 16 bits, and numpy computes the attention of that shape in double, on one
thread of its library (OPENBLAS_NUM_THREADS=1), from q, k and v that it holds in double. One line a shape and plan: the ratio
of the processor times, round by round, and its median. Memory: by how much the peak of the process grew, inputs and output
in memory before. Otherwise: the same call from Python and from C++, and their ratio; this needs the package for Python
(tools/python/install.sh), built from the same sources.

Each side is a process of its own; times are of the call alone, and of the processor, since other work on the machine does
not make it longer. Who begins changes from round to round.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

HEADS, KEYS, HEAD_DIM = 8, 64, 128
TYPES = "q=bf16 k=bf16 v=bf16 out=bf16"
SHAPES = {
    "b1": f"attention hq=8 hkv=8 l=256 t=2048 d=128 {TYPES} data=gauss:1",
    "batch": f"attention b=4 hq=32 hkv=32 l=128 t=2048 d=128 {TYPES} data=gauss:1",
    "prefill": f"attention hq=8 hkv=8 l=4096 t=4096 d=128 {TYPES} mask=causal_bottom_right data=gauss:1",
    "decode_32k": f"attention hq=32 hkv=8 l=1 t=32768 d=128 {TYPES} data=gauss:1",
    "decode_128k": f"attention hq=32 hkv=8 l=1 t=131072 d=128 {TYPES} data=gauss:1",
    "small": f"attention hq=8 hkv=8 l=1 t=512 d=64 {TYPES} data=gauss:1",
}
PLANS = ("torch_cpu_math", "flash_attention_2")


def peak_mib():
    """The peak of memory since the last call of this, which begins a new one (Linux)."""
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))
    with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")
    return peak


def serve(call):
    """A side in Python, in a process of its own: as judge_calls.cc. call: gives an outcome."""
    for _ in sys.stdin:
        peak_mib()
        before = peak_mib()  # what is there now
        start, processor = time.perf_counter(), time.process_time()
        outcome = call()
        used, clock = time.process_time() - processor, time.perf_counter() - start
        grown = peak_mib() - before
        print(outcome, clock, used, grown, flush=True)


def judging(text, plan, threads):
    """Judged from Python."""
    import kvcheck
    case = kvcheck.cases.draw(text)
    out = case.answer(plan=plan, threads=threads)["out"]
    return lambda: kvcheck.judge_attention(out, case.q, case.k, case.v, plan=plan, threads=threads).outcome


def computing(text):
    """The attention itself in double, a batch row and a key/value head at a time, written as one would."""
    import numpy as np
    words = dict(word.split("=") for word in text.split()[1:])
    b, heads, kv_heads, queries, keys, d = (int(words.get(key, 1)) for key in ("b", "hq", "hkv", "l", "t", "d"))
    group = heads // kv_heads
    random = np.random.default_rng(1)
    q = random.standard_normal((b, kv_heads, group * queries, d))
    k, v = random.standard_normal((2, b, kv_heads, keys, d))
    mask = words.get("mask", "none")
    if mask not in ("none", "causal_bottom_right"):
        sys.exit(f"mask={mask}: no mask, or causal_bottom_right")
    hidden = None
    if mask != "none":
        hidden = np.arange(keys) > (np.arange(group * queries) % queries)[:, None] + keys - queries

    def compute():
        out = np.empty_like(q)
        for row in range(b):
            for head in range(kv_heads):
                scores = q[row, head] @ k[row, head].T
                scores *= d ** -0.5
                if hidden is not None:
                    scores[hidden] = -np.inf
                scores -= scores.max(axis=-1, keepdims=True)
                np.exp(scores, out=scores)
                scores /= scores.sum(axis=-1, keepdims=True)
                out[row, head] = scores @ v[row, head]
        return "PASS"

    return compute


class Side:
    def __init__(self, command, environment=None):
        self.outcome = ""  # what the last call said
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})

    def judge(self):
        """(seconds of the clock, of the processor, MiB). What fails is explained too, and has no cost to compare; MISTRUSTED,
        as of long rows whose bound is as large as they are, is judged as a whole."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.outcome, *numbers = self.process.stdout.readline().split() or ["no answer"]
        if self.outcome not in ("PASS", "MISTRUSTED"):
            sys.exit(f"{self.process.args}: {self.outcome}")
        return [float(number) for number in numbers]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def in_turns(sides, rounds):
    """Of each round, {name: what the side said}."""
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        yield {name: side for name, side in ((name, sides[name].judge()) for name in order)}


def elements_of(text):
    words = dict(word.split("=") for word in text.split()[1:])
    return int(words.get("b", 1)) * int(words["hq"]) * int(words["l"]) * int(words["d"])


def beside_numpy(arguments):
    cases = [SHAPES[name] for name in arguments.shape.split(",") if name] + arguments.case
    plans = arguments.plan or PLANS
    print(f"one thread each, processor seconds, medians of {arguments.rounds} rounds in turns; rule {arguments.rule}\n")
    print("| case | plan | judge s | numpy s | judge / numpy | least | largest | ns per element | judge MiB | numpy MiB | verdict |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    largest = 0
    for text in cases:
        one_thread = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "MKL", "OMP", "BLIS")}
        sides = {"numpy": Side([sys.executable, __file__, "--compute", text], one_thread)}
        sides |= {plan: Side([arguments.judge_calls, text, f"base={plan}", "1", arguments.rule]) for plan in plans}
        said = list(in_turns(sides, arguments.rounds))
        numpy = statistics.median(one["numpy"][1] for one in said)
        for plan in plans:
            judge = statistics.median(one[plan][1] for one in said)
            ratios = [one[plan][1] / one["numpy"][1] for one in said]
            ratio = statistics.median(ratios)
            largest = max(largest, ratio)
            shown = text.removeprefix("attention ").replace(TYPES, "bf16").removesuffix(" data=gauss:1")
            print(f"| {shown} | {plan} | {judge:.4g} | {numpy:.4g} | {ratio:.1f} | {min(ratios):.1f} | {max(ratios):.1f} | "
                  f"{judge / elements_of(text) * 1e9:.0f} | {max(one[plan][2] for one in said):.1f} | "
                  f"{max(one['numpy'][2] for one in said):.1f} | {sides[plan].outcome} |", flush=True)
        for side in sides.values():
            side.end()
    print(f"\nlargest judge / numpy: {largest:.1f}")


def beside_python(arguments):
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
    for number, said in enumerate(in_turns(sides, arguments.rounds)):
        ratios.append(said["Python"][1] / said["C++"][1])
        grown = {name: max(grown.get(name, 0), said[name][2]) for name in sides}
        print(f"| {number + 1} | " + " | ".join(f"{said[name][part]:.3f}" for part in (0, 1) for name in ("C++", "Python"))
              + f" | {ratios[-1]:.4f} |", flush=True)
    print(f"\nmedian of Python / C++: {statistics.median(ratios):.4f}; peak of memory grew by "
          + ", ".join(f"{grown[name]:.1f} MiB ({name})" for name in sides))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judge_calls")
    parser.add_argument("--beside", choices=("python", "numpy"), default="python")
    parser.add_argument("--shape", default=None, help=f"by commas, of {', '.join(SHAPES)} (default: all but the last)")
    parser.add_argument("--case", action="append", default=[], help="a case of attention beside or instead of the shapes")
    parser.add_argument("--plan", action="append", default=[], help=f"default: {' and '.join(PLANS)}")
    parser.add_argument("--rule", choices=("statistics", "bound"), default="statistics")
    parser.add_argument("--elements", type=float, default=1e7)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.shape is None:
        arguments.shape = "" if arguments.case else ",".join(name for name in SHAPES if name != "small")
    unknown = set(filter(None, arguments.shape.split(","))) - set(SHAPES)
    if unknown:
        parser.error(f"--shape: no {', '.join(sorted(unknown))}; there are {', '.join(SHAPES)}")
    (beside_numpy if arguments.beside == "numpy" else beside_python)(arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(judging(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    elif sys.argv[1:2] == ["--compute"]:
        serve(computing(sys.argv[2]))
    else:
        main()
