#!/usr/bin/env python3
"""Outputs of attention kernels of a GPU over many keys, in safetensors files that `kvcheck compare` judges elsewhere.

  python3 bench/python/gpu_outputs.py FOLDER          on the machine with the GPU: torch only, no package of kvcheck
  python3 bench/python/gpu_outputs.py FOLDER KVCHECK  judges them: each under its plan, by both rules

A file holds q, k, v and one output for each kernel: PyTorch's flash, memory-efficient and cuDNN backends and
flex_attention, in bf16 or f16, decoding and a few queries over up to 16384 keys, of normal data and of values with a
mean. The second form prints a row per kernel and exits with 1 where a right kernel fails.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

PROBLEMS = {  # name: type, hq, hkv, l, t, d, mean of V
    "decode_bf16_16384": ("bfloat16", 8, 2, 1, 16384, 64, 0), "decode_f16_16384": ("float16", 8, 2, 1, 16384, 64, 0),
    "four_bf16_8192": ("bfloat16", 8, 2, 4, 8192, 128, 0), "mean_bf16_4096": ("bfloat16", 16, 4, 4, 4096, 64, 4),
    "rows_bf16_4096": ("bfloat16", 4, 1, 128, 4096, 64, 0), "rows_f16_1024": ("float16", 8, 8, 256, 1024, 64, 0),
}
PLANS = {"flash": "flash_attention_2", "efficient": "torch_cuda_efficient", "cudnn": "torch_cuda_cudnn"}
SHORT = {"bfloat16": "bf16", "float16": "f16"}


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    start = 8 + size
    return {name: (of["dtype"], of["shape"], raw[start + of["data_offsets"][0]:start + of["data_offsets"][1]])
            for name, of in json.loads(raw[8:start]).items()}


def make(folder):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import flex_attention
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    backends = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
                "cudnn": SDPBackend.CUDNN_ATTENTION}
    flex = torch.compile(flex_attention)
    for seed, (name, (type_name, hq, hkv, rows, keys, d, mean)) in enumerate(PROBLEMS.items()):
        dtype = getattr(torch, type_name)
        generator = torch.Generator("cuda").manual_seed(seed)
        q, k, v = (torch.randn((1, heads, n, d), generator=generator, device="cuda")
                   for heads, n in ((hq, rows), (hkv, keys), (hkv, keys)))
        q, k, v = q.to(dtype), k.to(dtype), (v + mean).to(dtype)
        of = {"q": q, "k": k, "v": v}
        wide = [x.repeat_interleave(hq // hkv, 1) for x in (k, v)]
        for kernel, backend in backends.items():
            try:
                with sdpa_kernel(backend):
                    of[f"out_{kernel}"] = sdpa(q, *wide)
            except RuntimeError as error:
                print(name, kernel, "refused:", str(error).splitlines()[0], file=sys.stderr)
        of["out_flex"] = flex(q, k, v, enable_gqa=True)
        write(folder / f"{name}.safetensors", {
            key: ({"bfloat16": "BF16", "float16": "F16"}[type_name], list(x.shape),
                  x.contiguous().view(torch.int16).cpu().numpy().tobytes()) for key, x in of.items()})
        print(name, *of)


def judge(folder, kvcheck):
    failed = 0
    print("| problem | kernel | plan | rule bound | err/bound | rule statistics | err/limit |\n|---|---|---|---|---|---|---|")
    for name, (type_name, hq, hkv, rows, keys, d, _) in PROBLEMS.items():
        tensors = read(folder / f"{name}.safetensors")
        short = SHORT[type_name]
        case = (f"attention hq={hq} hkv={hkv} l={rows} t={keys} d={d} q={short} k={short} v={short} out={short} "
                "data=file")
        for out in (key for key in tensors if key.startswith("out_")):
            kernel = out.removeprefix("out_")
            plan = PLANS.get(kernel, "torch_flex_attention" if rows >= 128 else "torch_flex_decoding")
            with tempfile.TemporaryDirectory() as place:
                path = pathlib.Path(place) / "one.safetensors"
                write(path, {key: tensors[out if key == "out" else key] for key in ("q", "k", "v", "out")})
                cells = []
                for rule in ("bound", "statistics"):
                    done = subprocess.run([kvcheck, "compare", str(path), "--case", case, "--plan", plan, "--json", "-",
                                           "--rule", rule], capture_output=True, text=True, check=False)
                    one = json.loads(done.stdout)["cases"][0]
                    worst = one["outputs"][0]["worst"]
                    cells += [one["counts_as"], f"{worst['ratio']:.3g}"]
                    failed += done.returncode == 1
            print(f"| {name} | {kernel} | {plan} | {' | '.join(cells)} |", flush=True)
    return failed > 0


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    sys.exit(judge(where, sys.argv[2]) if len(sys.argv) > 2 else make(where))
