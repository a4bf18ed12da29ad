#!/usr/bin/env python3
"""What judging an output that lies on a GPU costs, beside torch's own attention in float64 there and beside the host alone.

  python3 bench/python/gpu_judge.py [--shape B,HQ,HKV,L,T,D]... [--threads N] [--rounds N] [--host] [--faults]

A causal output of PyTorch's flash kernel in bf16, judged whole under flash_attention_2. Prints a row per shape and round:
seconds of the attention in float64 (products, softmax, products, a head at a time where all would not fit), of the judge
with sums on the GPU, of these sums alone, and with --host of the judge on the host alone; how many elements were accepted
by sums; whether both verdicts agree. --faults: outputs with one element, one row or one head wrong, whose verdicts must
agree too. Needs the package kvcheck and a GPU. Exit code 1 where verdicts differ or a right output fails.
"""

import argparse
import json
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

import kvcheck
from kvcheck import _device

PLAN = "flash_attention_2"
MOST_SCORES = 8 << 30  # bytes of float64 scores of torch's attention at once


def attention_float64(q, k, v):
    b, hq, length, d = q.shape
    group, keys = hq // k.shape[1], k.shape[2]
    hidden = torch.ones((length, keys), dtype=torch.bool, device=q.device).triu(keys - length + 1)
    heads = max(1, MOST_SCORES // (8 * length * keys))
    q, k, v = q.flatten(0, 1), k.repeat_interleave(group, 1).flatten(0, 1), v.repeat_interleave(group, 1).flatten(0, 1)
    out = torch.empty((b * hq, length, v.shape[-1]), dtype=torch.float64, device=q.device)
    for at in range(0, b * hq, heads):
        part = slice(at, at + heads)
        scores = torch.bmm(q[part].double(), k[part].double().transpose(1, 2)).mul_(d ** -0.5).masked_fill_(hidden, -torch.inf)
        torch.bmm(torch.softmax(scores, -1), v[part].double(), out=out[part])
    return out.view(b, hq, length, -1)


def seconds(work):
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def told(verdict):
    outputs = json.loads(verdict.to_json())["cases"][0]["outputs"]
    return verdict.outcome, verdict.reasons, [(out["outcome"], out["counts"]["failed"], out.get("worst")) for out in outputs]


def wrong_outputs(out):
    for name, at in (("element", (-1, -1, -5, 3)), ("row", (-1, -1, -5)), ("head", (-1, -1))):
        changed = out.clone()
        changed[at] *= 1.25
        yield name, changed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--faults", action="store_true")
    asked = parser.parse_args()
    differ = False
    print("| shape | float64 attention | judge, sums on the GPU | sums alone | host alone | accepted | verdict |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for shape in asked.shape or ["4,32,32,2048,2048,128"]:
        b, hq, hkv, length, keys, d = map(int, shape.split(","))
        generator = torch.Generator("cuda").manual_seed(1)
        q, k, v = (torch.randn((b, heads, n, d), generator=generator, device="cuda").bfloat16()
                   for heads, n in ((hq, length), (hkv, keys), (hkv, keys)))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = sdpa(q, k, v, is_causal=True, enable_gqa=hq != hkv)

        def judged(answer, device):
            return kvcheck.judge_attention(answer, q, k, v, causal=True, plan=PLAN, device=device, threads=asked.threads)

        def timed_sums():
            spent = [0.0]
            call = _device.HeadSums._make

            def timing(*arguments):
                start = time.perf_counter()
                call(*arguments)
                spent[0] += time.perf_counter() - start

            _device.HeadSums._make = timing
            took, verdict = seconds(lambda: judged(out, None))
            _device.HeadSums._make = call
            return took, verdict, spent[0]

        attention_float64(q, k, v), judged(out, None)
        for round_ in range(asked.rounds):
            of_torch, _ = seconds(lambda: attention_float64(q, k, v))
            of_judge, verdict, of_sums = timed_sums()
            of_host = ""
            if asked.host and round_ == 0:
                took, on_host = seconds(lambda: judged(out, "cpu"))
                of_host = f"{took:.3f}"
                differ |= told(on_host) != told(verdict)
            counts = json.loads(verdict.to_json())["cases"][0]["outputs"][0]["counts"]
            differ |= verdict.outcome != "PASS"
            print(f"| {shape} | {of_torch:.4f} | {of_judge:.3f} | {of_sums:.3f} | {of_host} | {counts['accepted']} of "
                  f"{counts['judged']} | {verdict.outcome} |", flush=True)
        for name, changed in wrong_outputs(out) if asked.faults else ():
            on_gpu, on_host = judged(changed, None), judged(changed, "cpu")
            same = told(on_gpu) == told(on_host)
            differ |= not same or on_gpu.outcome != "FAIL"
            print(f"one wrong {name}: {on_gpu.outcome}, {'the same' if same else 'another verdict'} on the host", flush=True)
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
