#!/usr/bin/env python3
"""What a GPU makes of the arithmetic of vLLM's writers per token and head, beside its transcription (token_head.py).

Usage: python probe_gpu_token_head.py write FILE              on a machine with a GPU, PyTorch and Triton: x and codes
       python probe_gpu_token_head.py compare FILE            with PyTorch and numpy: what differs from the transcription
       python probe_gpu_token_head.py golden FILE DIRECTORY   triton_token_head.h5 of some rows, all that differ among them

The kernels are our own: the same operations on a row (largest magnitude, division, reciprocal, clamp, store), which Triton
compiles as it does vLLM's. Rows are gaussian of many magnitudes, on a grid of 1/64 with many ties, with outliers, or offset.
"""
import sys

import torch

ROWS, DIM = 8192, 128


def rows(seed):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, DIM, generator=random)
    x *= torch.pow(2.0, torch.randint(-12, 12, (ROWS, 1), generator=random).float())
    x[::4] = torch.round(x[::4] * 64) / 64
    x[1::8] *= torch.randn(x[1::8].shape, generator=random) ** 4
    x[2::8] += 20 * torch.randn(ROWS // 8, 1, generator=random)
    return x


def write(path):
    import triton
    import triton.language as tl

    @triton.jit
    def eight_bits(x_ptr, code_ptr, scale_ptr, LARGEST: tl.constexpr, LOWEST: tl.constexpr, HALF: tl.constexpr, D: tl.constexpr):
        row = tl.program_id(0)
        at = row * D + tl.arange(0, D)
        x = tl.load(x_ptr + at).to(tl.float32)
        scale = tl.maximum(tl.max(tl.abs(x)) / LARGEST, 1e-6)
        tl.store(scale_ptr + row, scale)
        q = x * (1.0 / scale)
        if HALF:
            q = tl.where(q >= 0, q + 0.5, q - 0.5)
        tl.store(code_ptr + at, tl.clamp(q, LOWEST, LARGEST))

    @triton.jit
    def whole(position):
        return tl.clamp(tl.where(position >= 0, (position + 0.5).to(tl.int32), (position - 0.5).to(tl.int32)).to(tl.float32), 0.0, 15.0)

    @triton.jit
    def nibbles(x_ptr, code_ptr, scale_ptr, D: tl.constexpr):
        row = tl.program_id(0)
        pair = tl.arange(0, D // 2)
        even = tl.load(x_ptr + row * D + 2 * pair).to(tl.float32)
        odd = tl.load(x_ptr + row * D + 2 * pair + 1).to(tl.float32)
        low = tl.minimum(tl.min(even), tl.min(odd))
        high = tl.maximum(tl.max(even), tl.max(odd))
        scale = tl.maximum((high - low) / 15.0, 1e-6)
        zero = whole(-low / scale)
        inverse = 1.0 / scale
        first, second = whole(even * inverse + zero).to(tl.uint8), whole(odd * inverse + zero).to(tl.uint8)
        tl.store(code_ptr + row * (D // 2) + pair, first | (second << 4))
        bits = (scale.to(tl.int32, bitcast=True) & -16) | zero.to(tl.int32)
        tl.store(scale_ptr + row, bits)

    x = rows(1)
    device = x.cuda()
    found = {"x": x, "device": torch.cuda.get_device_name(), "torch": str(torch.__version__), "triton": triton.__version__}
    scale = lambda kind=torch.float32: torch.empty(ROWS, dtype=kind, device="cuda")
    for name, kind, largest, lowest, half in (("fp8:e4m3fn vllm", torch.float8_e4m3fn, 448.0, -448.0, False),
                                              ("fp8:e5m2 vllm", torch.float8_e5m2, 57344.0, -57344.0, False),
                                              ("int8 vllm", torch.int8, 127.0, -128.0, True),
                                              ("int8 vllm_truncate", torch.int8, 127.0, -128.0, False)):
        codes, scales = torch.empty(ROWS, DIM, dtype=kind, device="cuda"), scale()
        eight_bits[(ROWS,)](device, codes, scales, largest, lowest, half, DIM)
        found[name] = codes.view(torch.uint8).cpu(), scales.cpu()
    codes, scales = torch.empty(ROWS, DIM // 2, dtype=torch.uint8, device="cuda"), scale(torch.int32)
    nibbles[(ROWS,)](device, codes, scales, DIM)
    found["int4zp vllm"] = codes.cpu(), scales.cpu()
    torch.save(found, path)


def transcribed(found, name):
    """Format, writer, whether scales differ by row, and whether codes do: (ROWS, bytes)."""
    import numpy as np

    import token_head

    format_name, writer = name.split(" ")
    want = token_head.encode(found["x"].numpy(), f"{format_name}:token:f32", writer)
    codes, scales = found[name]
    differ = codes.numpy() != want["codes"].view(np.uint8)
    return format_name, writer, scales.numpy().view(np.int32) != want["scales"][:, 0].view(np.int32), differ


def unexplained(found, name):
    """Rows of 8-bit codes that no reciprocal within one unit of 1 / s makes."""
    import numpy as np

    import token_head

    format_name, writer = name.split(" ")
    x, (codes, scales) = found["x"].numpy(), found[name]
    nearest = np.float32(1) / scales.numpy()[:, None]
    wrong = []
    for inverse in (nearest, np.nextafter(nearest, np.float32(0)), np.nextafter(nearest, np.float32(np.inf))):
        made = token_head.codes_by(x, token_head.parts_of(f"{format_name}:token:f32")[0], inverse, writer)
        wrong.append((made.view(np.uint8) != codes.numpy()).sum(1))
    return int((np.min(wrong, 0) > 0).sum())


def compare(path):
    found = torch.load(path)
    print(f"{found['device']}, torch {found['torch']}, triton {found['triton']}: {found['x'].numel()} values a writer")
    for name in (key for key in found if " vllm" in key):
        format_name, _, scales, codes = transcribed(found, name)
        text = f"{name}: {scales.sum()} of {len(scales)} scales differ, {codes.sum()} of {codes.size} bytes of codes"
        if format_name != "int4zp":
            text += f", {unexplained(found, name)} rows that no reciprocal within one unit explains"
        print(text)


def golden(path, directory):
    import numpy as np

    import kvcheck_golden as kg

    found = torch.load(path)
    x = found["x"].numpy()
    source = f"Triton {found['triton']} on {found['device']}, the operations of vLLM's writers"
    with kg.Writer(f"{directory}/triton_token_head.h5", source=source, command="python golden/make/probe_gpu_token_head.py") as writer:
        for name in (key for key in found if " vllm" in key):
            format_name, writer_name, _, differ = transcribed(found, name)
            chosen = np.unique(np.concatenate([np.arange(24), np.flatnonzero(differ.any(1))[:24]]))
            text = f"{format_name}:token:f32"
            codes, scales = (part.numpy()[chosen] for part in found[name])
            planes = {"codes": codes.view(np.int8) if format_name == "int8" else codes, "scales": scales.view(np.float32).reshape(-1, 1)}
            case = writer.case(f"encode.{name.replace(':', '.').replace(' ', '.')}",
                               f"codec op=encode format={text} x=f32 rows={len(chosen)} d={DIM} data=file", {"x": x[chosen]})
            case.observed("triton", {plane: kg.Typed(array, axes=("", "")) for plane, array in planes.items()},
                          implementation="kernels of probe_gpu_token_head.py", version=f"triton {found['triton']}, torch {found['torch']}",
                          machine=found["device"], profile="" if format_name == "int4zp" else f"token_encode={writer_name}")


if __name__ == "__main__":
    {"write": write, "compare": compare, "golden": golden}[sys.argv[1]](*sys.argv[2:])
