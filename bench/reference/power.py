#!/usr/bin/env python3
"""What kvcheck sees of wrong attention over many keys.

  python3 bench/reference/power.py KVCHECK [--tokens 64,1024,4096,16384] [--plans all|NAME,...] [--types bf16,f16]
                                           [--rules bound,statistics] [--jobs N]

Faults of `kvcheck faults list`, each put into a simulated kernel of the plan, in a case that it can change (sinks, a
window of half the length, masks). Judged as `kvcheck run` does. A PASS whose first line names what it could not have
seen is counted apart from a bare one, and so is a PASS where the fault moves nothing: the output is that of the kernel
without it, or sinks move no output by more than a tenth of its spacing (over many keys their weight is nothing). Prints a row per type, number of keys, plan and rule, then how
many of the faulty outputs fail at each number of keys. Exit code 1 where a kernel without a fault fails.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import subprocess
import sys

WINDOW = "mask=causal_bottom_right+window:{half}"
FAULTS = {
    "first_key_dropped": "", "last_key_dropped": "", "last_key_twice": "", "stale_k_row": "", "v_rows_swapped": "",
    "wrong_kv_head": "", "scale_of_next_dim": "", "temperature_1_percent": "",
    "future_key_visible": "mask=causal_bottom_right", "window_too_wide": WINDOW, "window_too_narrow": WINDOW,
    "sinks_ignored": "sinks=f32", "sink_of_next_head": "sinks=f32",
    "denominator_in_bf16": "", "p_in_e4m3": "", "output_truncated": "",
}
# Faults that may have no effect to speak of, as statistics call their directions.
MAY_MOVE_NOTHING = {"sinks_ignored": "sink left out", "sink_of_next_head": "sink of the next head"}
RIGHT = "without a fault"


def judged(kvcheck, case, plan, implementation, rule):
    """What the output comes to, a column of the table; None where the plan says nothing of the case."""
    command = [kvcheck, "run", case, "--plan", plan, "--impl", implementation, "--rule", rule, "-j", "1", "--max-print", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 2:
        return None
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{' '.join(command)}\n{done.stderr or done.stdout}")
    outcome = {0: "PASS", 1: "FAIL", 3: "MISTRUSTED"}[done.returncode]
    if outcome != "PASS" or implementation == f"simulated:base={plan}":
        return outcome
    if moves_nothing(command, plan, implementation):
        return "moves nothing"
    return "PASS, says so" if "blind to" in done.stdout.splitlines()[0] else "bare PASS"


def moves_nothing(command, plan, implementation):
    """Whether a fault's output is that of the kernel without it (a P of one key a range is 1 in any type), or, of sinks,
    moves by less than a tenth of its spacing in all rows that statistics look at."""
    command = [*command, "--json", "-"]
    command[command.index("--rule") + 1] = "statistics"

    def output(of):
        asked = [of if word == implementation else word for word in command]
        return json.loads(subprocess.run(asked, capture_output=True, text=True).stdout)["cases"][0]["outputs"][0]

    faulty = output(implementation)
    direction = MAY_MOVE_NOTHING.get(implementation.removeprefix("fault:"))
    if direction is None:
        return faulty["metrics"] == output(f"simulated:base={plan}")["metrics"]
    rows = [entry["rows"] for entry in faulty["statistics"]["directions"] if entry["direction"] == direction]
    return bool(rows) and not any(rows)


def known_plans(kvcheck):
    listed = subprocess.run([kvcheck, "plans"], capture_output=True, text=True)
    return [line.split()[0] for line in listed.stdout.splitlines() if line and not line.startswith(" ")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcheck")
    parser.add_argument("--tokens", default="16384")
    parser.add_argument("--types", default="bf16")
    parser.add_argument("--plans", default="flash_attention_2,flashinfer_decode,vllm_triton")
    parser.add_argument("--rules", default="bound,statistics")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    plans = known_plans(asked.kvcheck) if asked.plans == "all" else asked.plans.split(",")

    def case_of(kind, tokens, terms):
        return " ".join(f"attention hq=8 hkv=2 l=4 t={tokens} d=64 q={kind} k={kind} v={kind} out={kind} "
                        f"{terms.format(half=tokens // 2)} data=gauss:3".split())

    questions = [(kind, int(tokens), plan, rule, fault)
                 for kind in asked.types.split(",") for tokens in asked.tokens.split(",") for plan in plans
                 for rule in asked.rules.split(",") for fault in [*FAULTS, RIGHT]]

    def answer(question):
        kind, tokens, plan, rule, fault = question
        implementation = f"simulated:base={plan}" if fault == RIGHT else f"fault:{fault}"
        return judged(asked.kvcheck, case_of(kind, tokens, FAULTS.get(fault, "")), plan, implementation, rule)

    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        answers = dict(zip(questions, pool.map(answer, questions)))

    alarms = 0
    totals = collections.defaultdict(collections.Counter)
    rows = collections.defaultdict(lambda: (collections.Counter(), []))
    for (kind, tokens, plan, rule, fault), got in answers.items():
        if got is None:
            continue
        if fault == RIGHT:
            alarms += got == "FAIL"
            continue
        counts, passed = rows[kind, tokens, plan, rule]
        counts[got] += 1
        totals[tokens, rule][got] += 1
        if "PASS" in got:
            passed.append(fault + " (bare)" * (got == "bare PASS"))
    columns = ("FAIL", "MISTRUSTED", "PASS, says so", "bare PASS", "moves nothing")
    print("| type | keys | plan | rule | " + " | ".join(columns) + " | faults that pass |")
    print("|---" * (5 + len(columns)) + "|")
    for (kind, tokens, plan, rule), (counts, passed) in rows.items():
        print(f"| {kind} | {tokens} | {plan} | {rule} | " + " | ".join(str(counts[c]) for c in columns)
              + f" | {', '.join(passed)} |")
    for (tokens, rule), counts in totals.items():
        print(f"{tokens} keys, rule {rule}: {counts['FAIL']} of {sum(counts.values()) - counts['moves nothing']} fail, "
              f"{counts['bare PASS']} bare PASS")
    print(f"kernels without a fault that fail: {alarms}")
    return alarms > 0


if __name__ == "__main__":
    sys.exit(main())
