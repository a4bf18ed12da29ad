#!/usr/bin/env python3
"""What a GPU makes of the arithmetic of vLLM's uniform V codes, beside its transcription (uniform.py).

Usage: python probe_gpu_uniform.py write FILE              on a machine with a GPU, PyTorch and Triton: rows and planes
       python probe_gpu_uniform.py compare FILE            with PyTorch and numpy: what differs from the transcription
       python probe_gpu_uniform.py golden FILE DIRECTORY   triton_uniform.h5 of some rows, all that differ among them

The kernel is our own: the same operations on a row (minimum, maximum, division, truncation, casts), which Triton compiles
as it does vLLM's. Rows are those of probe_gpu_token_head.py.
"""
import sys

import torch
from probe_gpu_token_head import DIM, ROWS, rows


def write(path):
    import triton
    import triton.language as tl

    @triton.jit
    def uniform(x_ptr, code_ptr, scale_ptr, zero_ptr, LEVELS: tl.constexpr, TOP: tl.constexpr, D: tl.constexpr):
        row = tl.program_id(0)
        at = row * D + tl.arange(0, D)
        x = tl.load(x_ptr + at).to(tl.float32)
        low, high = tl.min(x, axis=0), tl.max(x, axis=0)
        scale = (high - low) / LEVELS
        scale = tl.where(scale > 1e-8, scale, 1e-8)
        codes = tl.minimum(tl.maximum(((x - low) / scale + 0.5).to(tl.int32), 0), TOP)
        tl.store(code_ptr + at, codes.to(tl.uint8))
        tl.store(scale_ptr + row, scale.to(tl.float16))
        tl.store(zero_ptr + row, low.to(tl.float16))

    @triton.jit
    def values(code_ptr, scale_ptr, zero_ptr, y_ptr, D: tl.constexpr):
        row = tl.program_id(0)
        at = row * D + tl.arange(0, D)
        scale, zero = tl.load(scale_ptr + row).to(tl.float32), tl.load(zero_ptr + row).to(tl.float32)
        tl.store(y_ptr + at, tl.load(code_ptr + at).to(tl.float32) * scale + zero)

    x = rows(1)
    device = x.cuda()
    found = {"x": x, "device": torch.cuda.get_device_name(), "torch": str(torch.__version__), "triton": triton.__version__}
    for bits in (3, 4):
        codes = torch.empty(ROWS, DIM, dtype=torch.uint8, device="cuda")
        scales, zeros = (torch.empty(ROWS, dtype=torch.float16, device="cuda") for _ in range(2))
        y = torch.empty_like(device)
        uniform[(ROWS,)](device, codes, scales, zeros, float(2**bits - 1), 2**bits - 1, DIM)
        values[(ROWS,)](codes, scales, zeros, y, DIM)
        found[bits] = codes.cpu(), scales.cpu(), zeros.cpu(), y.cpu()
    torch.save(found, path)


def transcribed(found, bits):
    """Planes of the transcription, and which codes, scales, zeros and values differ."""
    import numpy as np
    import uniform

    text = f"uniform:{bits}:token:f32"
    codes, scales, zeros, y = (part.numpy() for part in found[bits])
    x = found["x"].numpy()
    want = uniform.encode(x, text)
    got = {"codes": uniform.pack(codes, bits), "scales": scales[:, None], "zeros": zeros[:, None]}
    differ = codes != uniform.codes_of(x, bits)
    explained = np.minimum(*(codes != uniform.codes_of(x, bits, unit) for unit in (-1, 1)))
    return got, {"codes": differ, "codes that no reciprocal within one unit makes": differ & explained,
                 "scales": got["scales"].view(np.uint16) != want["scales"].view(np.uint16),
                 "zeros": got["zeros"].view(np.uint16) != want["zeros"].view(np.uint16),
                 "values read": y.view(np.uint32) != uniform.decode(got, text).view(np.uint32)}


def compare(path):
    found = torch.load(path)
    print(f"{found['device']}, torch {found['torch']}, triton {found['triton']}: {found['x'].numel()} values a width")
    for bits in (3, 4):
        counts = transcribed(found, bits)[1]
        print(f"{bits} bits: " + ", ".join(f"{differ.sum()} of {differ.size} {name}" for name, differ in counts.items()))


def golden(path, directory):
    import kvcheck_golden as kg
    import numpy as np

    found = torch.load(path)
    x = found["x"].numpy()
    source = f"Triton {found['triton']} on {found['device']}, the operations of vLLM's writer of V"
    with kg.Writer(f"{directory}/triton_uniform.h5", source=source, command="python golden/make/probe_gpu_uniform.py") as writer:
        for bits in (3, 4):
            got, counts = transcribed(found, bits)
            chosen = np.unique(np.concatenate([np.arange(24), np.flatnonzero(counts["codes"].any(1))[:24]]))
            case = writer.case(f"encode.uniform.{bits}",
                               f"codec op=encode format=uniform:{bits}:token:f32 x=f32 rows={len(chosen)} d={DIM} data=file",
                               {"x": x[chosen]})
            case.observed("triton", {plane: kg.Typed(array[chosen], axes=("", "")) for plane, array in got.items()},
                          implementation="kernels of probe_gpu_uniform.py", version=f"triton {found['triton']}, torch {found['torch']}",
                          machine=found["device"], profile="")


if __name__ == "__main__":
    {"write": write, "compare": compare, "golden": golden}[sys.argv[1]](*sys.argv[2:])
