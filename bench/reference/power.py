#!/usr/bin/env python3
"""What each way of judging sees of wrong attention over many keys.

  python3 bench/reference/power.py KVCHECK [--tokens 16384] [--plans flash_attention_2,vllm_triton] [--type bf16]

Faults of `kvcheck faults list`, each put into a simulated kernel of the plan, in a case that it can change (sinks, a
window of half the length, masks). Judged as `kvcheck run` does, and with --strict: the bound of independent roundings
and the statistics decide too. Prints a row per plan and rule: how many FAIL, are MISTRUSTED, PASS; the faults that pass.
Exit code 1 where a kernel without a fault fails.
"""

import argparse
import collections
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


def judged(kvcheck, case, plan, implementation, strict):
    command = [kvcheck, "run", case, "--plan", plan, "--impl", implementation]
    done = subprocess.run(command + ["--strict"] * strict, capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"{' '.join(command)}\n{done.stderr or done.stdout}")
    return {0: "PASS", 1: "FAIL", 3: "MISTRUSTED"}[done.returncode]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcheck")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--type", default="bf16")
    parser.add_argument("--plans", default="flash_attention_2,flashinfer_decode,vllm_triton")
    asked = parser.parse_args()
    base = (f"attention hq=8 hkv=2 l=4 t={asked.tokens} d=64 q={asked.type} k={asked.type} v={asked.type} "
            f"out={asked.type} {{}} data=gauss:3")
    alarms = 0
    print("| plan | rule | FAIL | MISTRUSTED | PASS | faults that pass |\n|---|---|---|---|---|---|")
    for plan in asked.plans.split(","):
        for strict in (False, True):
            outcomes = collections.Counter()
            passed = []
            for fault, terms in FAULTS.items():
                case = " ".join(base.format(terms.format(half=asked.tokens // 2)).split())
                outcome = judged(asked.kvcheck, case, plan, f"fault:{fault}", strict)
                outcomes[outcome] += 1
                if outcome == "PASS":
                    passed.append(fault)
            right = judged(asked.kvcheck, " ".join(base.format("").split()), plan, f"simulated:base={plan}", strict)
            alarms += right == "FAIL"
            print(f"| {plan} | {'strict' if strict else 'default'} | {outcomes['FAIL']} | {outcomes['MISTRUSTED']} | "
                  f"{outcomes['PASS']} | {', '.join(passed)} |", flush=True)
    print(f"kernels without a fault that fail: {alarms}")
    return alarms > 0


if __name__ == "__main__":
    sys.exit(main())
