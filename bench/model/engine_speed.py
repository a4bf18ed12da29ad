"""Tokens a second of one sequence in the trained model: kvcheck's fast path beside other engines, in turns.

    engine_speed.py MODEL_SPEED [ENGINE...] [--rounds N] [--context N] [--threads N]

MODEL_SPEED: bench/model/model_speed of the build. ENGINE: transformers (the default), mlx_lm, llama_cpp, each in its
environment (tools/adapters/make_venv.sh). All are fed the same tokens in the same chunks, teacher-forced, through a plain
cache in float32: 128 tokens a call, the last eighth of the context token by token, which is decode. Loading is not timed.

Prints a line a round and engine, then medians, and how many times as fast kvcheck is: medians over the rounds of what one
round measured. Beside wall time stands processor time, which other work on the machine changes less; with more than one
thread it counts those that wait in a loop, too.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ADAPTERS = REPOSITORY / "tools/adapters"
MODEL = REPOSITORY / "golden/model"
RUN = "plain"


def answer(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{command}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def gold_of(kvcheck, context, folder):
    gold = folder / "gold.safetensors"
    subprocess.run([kvcheck, "agree", "--model", MODEL, "--text", MODEL / "held_out.txt", "--positions", str(context),
                    "--context", str(context), "--write-logits", gold], check=True, stdin=subprocess.DEVNULL)
    return gold


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_speed", type=pathlib.Path)
    parser.add_argument("engines", nargs="*", default=["transformers"])
    parser.add_argument("--kvcheck", type=pathlib.Path, help="the program (default: that of the same build)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    kvcheck = chosen.kvcheck or chosen.model_speed.resolve().parents[2] / "tools/kvcheck/kvcheck"
    with tempfile.TemporaryDirectory(prefix="kvcheck-speed-") as temporary:
        folder = pathlib.Path(temporary)
        gold = gold_of(kvcheck, chosen.context, folder)
        commands = {"kvcheck": [chosen.model_speed, MODEL, MODEL / "held_out.txt", "f32", chosen.context, chosen.threads]}
        for name in chosen.engines:
            commands[name] = [ADAPTERS / name / "venv/bin/python", ADAPTERS / name / "agree.py", gold, folder, RUN, "--model",
                              MODEL, "--times", "--threads", chosen.threads]
        rates = {}  # (engine, step, clock): tokens a second, by round
        for i in range(chosen.rounds):
            for name, command in commands.items():
                spent = answer(command)
                shown = []
                for step in ("prefill", "decode"):
                    for clock in ("wall", "processor"):
                        rate = spent[step]["tokens"] / spent[step][clock]
                        rates.setdefault((name, step, clock), []).append(rate)
                        shown.append(f"{step} {rate:.0f} a {clock} second")
                print(f"round {i + 1} {name}: {', '.join(shown)}", flush=True)
    print("\n| engine | step | tokens a second | tokens a processor second | kvcheck, times | of processor time |")
    print("|---|---|---|---|---|---|")
    for name in commands:
        for step in ("prefill", "decode"):
            cells = [f"{statistics.median(rates[name, step, clock]):.0f}" for clock in ("wall", "processor")]
            for clock in ("wall", "processor"):
                ratios = [ours / theirs for ours, theirs in zip(rates["kvcheck", step, clock], rates[name, step, clock])]
                cells.append("" if name == "kvcheck" else f"{statistics.median(ratios):.2f}")
            print("| " + " | ".join([name, step, *cells]) + " |")


if __name__ == "__main__":
    main()
