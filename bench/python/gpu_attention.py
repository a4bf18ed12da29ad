#!/usr/bin/env python3
"""Attention kernels of a GPU, judged by the installed package kvcheck; faults in a Triton kernel.

  python3 bench/python/gpu_attention.py [--small]

Kernels: PyTorch's flash, memory-efficient and cuDNN backends, flex_attention compiled by Triton,
and the Triton kernel of triton_attention.py, in bf16 and f16, decoding and prefill up to 32768
keys. Outputs are judged whole where elements times keys are at most 2^35, others by 4096 rows; then
each fault of the Triton kernel is put in. Exit code 1 where a right kernel fails or proves nothing, or a fault
passes. The package needs no compiler there: take the wheel that tools/python/make_wheel.sh makes.
"""

import argparse
import collections
import json
import pathlib
import sys
import time

import kvcheck
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import triton_attention  # noqa: E402

WHOLE = 1 << 35  # elements times keys
ROWS = 4096
Problem = collections.namedtuple("Problem", "name b hq hkv l t d causal")

PROBLEMS = [
    Problem("decode 1024", 8, 32, 8, 1, 1024, 128, False),
    Problem("decode 8192", 4, 32, 8, 1, 8192, 128, False),
    Problem("decode 32768", 4, 32, 8, 1, 32768, 128, False),
    Problem("8 queries, 32768", 1, 32, 8, 8, 32768, 128, False),
    Problem("prefill 129", 2, 8, 2, 129, 129, 64, True),
    Problem("prefill 1024", 2, 16, 4, 1024, 1024, 64, True),
    Problem("prefill 4096", 1, 16, 4, 4096, 4096, 128, True),
    Problem("prefill 8192", 1, 16, 16, 8192, 8192, 64, True),
    Problem("prefill 32768", 1, 8, 2, 32768, 32768, 128, True),
]
SMALL = [PROBLEMS[0], PROBLEMS[4]]
# Where the axes differ, all 12 faults of the kernel change the output.
FAULTY = [Problem("faults, prefill", 1, 4, 2, 200, 327, 64, True), Problem("faults, decode", 2, 8, 2, 1, 777, 128, False)]


def inputs(problem, dtype, seed):
    """Normal values; keys with two channels some 8 times as large, as real models have them."""
    generator = torch.Generator("cuda").manual_seed(seed)

    def draw(heads, rows):
        shape = (problem.b, heads, rows, problem.d)
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32)

    q, k, v = draw(problem.hq, problem.l), draw(problem.hkv, problem.t), draw(problem.hkv, problem.t)
    k[..., [1, problem.d // 2]] *= 8
    return q.to(dtype), k.to(dtype), v.to(dtype)


def sdpa(backend):
    def call(problem, q, k, v):
        repeat = problem.hq // problem.hkv
        if backend != SDPBackend.FLASH_ATTENTION:
            k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=problem.causal, enable_gqa=True)

    return call


# Beyond the limit PyTorch takes the kernel that is not compiled, with scores in the storage type.
torch._dynamo.config.recompile_limit = 64
torch._dynamo.config.fail_on_recompile_limit_hit = True
compiled_flex = torch.compile(flex_attention, dynamic=False)


def flex(problem, q, k, v):
    mask = None
    if problem.causal:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, problem.l, problem.t)
    return compiled_flex(q, k, v, block_mask=mask, enable_gqa=True)


def flex_plan(problem):
    return "torch_flex_attention" if problem.l >= 128 else "torch_flex_decoding"


KERNELS = [
    ("torch flash", sdpa(SDPBackend.FLASH_ATTENTION), lambda problem: "flash_attention_2"),
    ("torch efficient", sdpa(SDPBackend.EFFICIENT_ATTENTION), lambda problem: "torch_cuda_efficient"),
    ("torch cuDNN", sdpa(SDPBackend.CUDNN_ATTENTION), lambda problem: "torch_cuda_cudnn"),
    ("torch flex", flex, flex_plan),
    ("own Triton", lambda problem, q, k, v: triton_attention.attention(q, k, v, problem.causal),
     lambda problem: triton_attention.PLAN),
]


def judge(problem, plan, out, q, k, v, rows):
    start = time.perf_counter()
    verdict = kvcheck.judge_attention(
        out, q, k, v, plan=plan, rows=rows,
        # The square problems say the same by either alignment; the Triton kernel has the bottom right.
        causal="bottom_right" if problem.causal else False)
    return verdict, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, kvcheck {kvcheck.__version__}")

    print("\n| kernel | problem | type | elements | judged | outcome | err/bound | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    wrong, elements, judged = 0, 0, 0
    for number, problem in enumerate(SMALL if arguments.small else PROBLEMS):
        for dtype in (torch.bfloat16, torch.float16):
            q, k, v = inputs(problem, dtype, number + 1)
            for name, call, plan in KERNELS:
                try:
                    out = call(problem, q, k, v)
                    torch.cuda.synchronize()
                except RuntimeError as error:
                    print(f"{name:16} {problem.name:18} {dtype}: refused by the library: {str(error).splitlines()[0]}")
                    continue
                rows = ROWS if out.numel() * problem.t > WHOLE else None
                verdict, seconds = judge(problem, plan(problem), out, q, k, v, rows)
                of_it = json.loads(verdict.to_json())["cases"][0]["outputs"][0]["counts"]["judged"]
                elements += out.numel()
                judged += of_it
                wrong += not verdict.passed
                worst = verdict.worst
                ratio = round(worst["ratio"], 3) if worst else None
                cells = [name, problem.name, str(dtype).split(".")[1], out.numel(), of_it, verdict.outcome, ratio,
                         round(seconds, 2)]
                print("|", " | ".join(map(str, cells)), "|", flush=True)
                if not verdict.passed:
                    print(verdict, file=sys.stderr)

    missed = 0
    for problem in FAULTY:
        for dtype in (torch.bfloat16, torch.float16):
            q, k, v = inputs(problem, dtype, 77)
            right, _ = judge(problem, triton_attention.PLAN, triton_attention.attention(q, k, v, problem.causal),
                             q, k, v, None)
            wrong += not right.passed
            for fault in triton_attention.FAULTS:
                out = triton_attention.attention(q, k, v, problem.causal, fault)
                same = torch.equal(out, triton_attention.attention(q, k, v, problem.causal))
                verdict, _ = judge(problem, triton_attention.PLAN, out, q, k, v, None)
                found = verdict.outcome == "FAIL"
                missed += not found and not same
                shown = "changes nothing here" if same else "found" if found else f"MISSED ({verdict.outcome})"
                print(f"fault {fault:28} {problem.name:16} {str(dtype).split('.')[1]:9} {shown}", flush=True)

    print(f"\n{elements} elements of outputs, {judged} judged; {wrong} right outputs did not pass; {missed} faults missed")
    return int(bool(wrong or missed))


if __name__ == "__main__":
    sys.exit(main())
