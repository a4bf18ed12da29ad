"""How far the approximate instructions of an NVIDIA GPU are from the exact functions: every float of a range, or 2^30 drawn
pairs. What the plans of kernels built with fast math, and of Triton's, say of exp, tanh, log and division rests on it
(plans_of_gpu_kernels.md, section 8).

    python3 golden/make/probe_gpu_functions.py

Needs a CUDA build of PyTorch with Triton and a GPU.
"""
import math
import struct

import torch
import triton
import triton.language as tl

CHUNK = 1 << 26


@triton.jit
def one_operand(x_ptr, y_ptr, ASM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.inline_asm_elementwise(ASM, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1))


@triton.jit
def two_operands(a_ptr, b_ptr, y_ptr, ASM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(y_ptr + at, tl.inline_asm_elementwise(ASM, "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1))


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def floats(first, last):
    """All floats whose bits lie in [first, last), in chunks."""
    for begin in range(first, last, CHUNK):
        yield torch.arange(begin, min(begin + CHUNK, last), dtype=torch.int64, device="cuda").to(torch.int32).view(torch.float32)


def padded(x):
    rest = -len(x) % 1024
    return torch.cat([x, x[-1:].expand(rest)]) if rest else x


def run(asm, *operands):
    count = len(operands[0])
    given = [padded(x).contiguous() for x in operands]
    y = torch.empty_like(given[0])
    (one_operand if len(given) == 1 else two_operands)[(len(y) // 1024,)](*given, y, ASM=asm, BLOCK=1024)
    return y[:count].double()


def survey(asm, exact, low, high, negative, floor):
    """Largest relative error where |exact| >= floor, and largest absolute error below, over all floats of magnitude
    low .. high."""
    relative, absolute, at = 0.0, 0.0, None
    for x in floats(bits_of(low), bits_of(high) + 1):
        x = -x if negative else x
        got, want = run(asm, x), exact(x.double())
        error = (got - want).abs()
        normal = want.abs() >= floor
        ratio = torch.where(normal, error / want.abs(), 0)
        largest = ratio.max().item()
        if not largest <= relative:
            relative, at = largest, x[ratio.argmax()].item()
        absolute = max(absolute, torch.where(normal, 0, error).max().item())
    small = f"; below {floor:.3g} off by at most {absolute:.3g}" if absolute else ""
    return f"2^{math.log2(relative):.3f} at {at!r}{small}"


def divisions(asm):
    generator = torch.Generator("cuda").manual_seed(1)
    worst = 0.0
    for _ in range(16):
        a, b = (torch.randint(bits_of(2.0**-60), bits_of(2.0**60), (CHUNK,), generator=generator, device="cuda",
                              dtype=torch.int64).to(torch.int32).view(torch.float32) for _ in range(2))
        want = a.double() / b.double()
        worst = max(worst, ((run(asm, a, b) - want).abs() / want).max().item())
    return f"2^{math.log2(worst):.3f} over 2^30 drawn pairs"


def main():
    print(f"torch {torch.__version__}, Triton {triton.__version__}, {torch.cuda.get_device_name()}")
    least = 2.0**-126
    for asm in ("ex2.approx.f32 $0, $1;", "ex2.approx.ftz.f32 $0, $1;"):
        print(asm, "on [-150, 0]:", survey(asm, torch.exp2, 2.0**-149, 150.0, True, least))
    print("ex2.approx.ftz.f32 on [0, 127]:", survey("ex2.approx.ftz.f32 $0, $1;", torch.exp2, 2.0**-149, 127.0, False, least))
    print("rcp.approx.ftz.f32 on [2^-126, 2^126]:",
          survey("rcp.approx.ftz.f32 $0, $1;", torch.reciprocal, least, 2.0**126, False, least))
    print("tanh.approx.f32 on [2^-126, 100]:", survey("tanh.approx.f32 $0, $1;", torch.tanh, least, 100.0, False, least))
    for low, high in ((0.5, 2.0), (2.0, 2.0**127), (least, 0.5)):
        print(f"lg2.approx.ftz.f32 on [{low:.3g}, {high:.3g}]:",
              survey("lg2.approx.ftz.f32 $0, $1;", torch.log2, low, high, False, 0.0 if low != 0.5 else 0.5))
    print("div.full.f32:", divisions("div.full.f32 $0, $1, $2;"))
    print("div.approx.ftz.f32:", divisions("div.approx.ftz.f32 $0, $1, $2;"))


if __name__ == "__main__":
    main()
