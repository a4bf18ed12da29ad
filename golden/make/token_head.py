"""Codes of 8 and 4 bits with a float32 scale per vector, in numpy: a second writing beside the C++ of the project, and a
transcription of what vLLM's Triton kernels write, which run on GPUs alone.

vLLM: vllm/v1/attention/ops/triton_reshape_and_cache_flash.py, kernel _reshape_cache_per_token_head (pull
request 38378), integers rounded since pull request 45361 (2026-06-12) and truncated before; and
vllm/v1/attention/ops/int4_per_token_head.py, kernel _reshape_cache_int4_kernel (pull request 40835). As Triton 3.6 compiles these operations
for an H100 (probe_gpu_token_head.py): a division by a constant is a product with its reciprocal, other divisions are
products with 1 / s, and x (1 / s) + z is fused. Here 1 / s is the nearest float32; a GPU's may be one unit beside it.
"""
import numpy as np

F = np.float32
# mantissa bits, bias, number of finite magnitudes
FP8 = {"e4m3fn": (3, 7, 127), "e5m2": (2, 15, 124), "e4m3fnuz": (3, 8, 128), "e5m2fnuz": (2, 16, 128)}
FLOOR = F(1e-6)


def parts_of(text):
    """Code, place and row type of a format; None of another family."""
    name, *parts = text.split(":")
    if name == "fp8":
        return tuple(parts)
    return (name, *parts) if name in ("int8", "int4zp") else None


def magnitudes(code):
    mantissa_bits, bias, count = FP8[code]
    values = []
    for bits in range(count):
        field, mantissa = divmod(bits, 1 << mantissa_bits)
        if field == 0:
            values.append(mantissa * 2.0 ** (1 - bias - mantissa_bits))
        else:
            values.append((1 + mantissa / 2.0**mantissa_bits) * 2.0 ** (field - bias))
    return np.array(values)


def values_of(code):
    """The value of every byte."""
    if code == "int8":
        return np.arange(256).astype(np.uint8).view(np.int8).astype(F)
    table, finite = np.full(256, np.nan, F), magnitudes(code).astype(F)
    for sign in (0, 128):
        for bits, value in enumerate(finite):
            if code.endswith("uz") and sign and bits == 0:
                continue  # NaN
            table[sign + bits] = -value if sign else value
    if code == "e5m2":
        table[0x7C], table[0xFC] = np.inf, -np.inf
    return table


def cast(code, q, overflow):
    """fp8 codes of float32 positions. overflow: nan (NaN, of e5m2 infinity) or saturate. NaN: 7f and 7e with its sign."""
    finite, size = magnitudes(code), np.abs(q).astype(np.float64)
    top = finite[-1] + (finite[-1] - finite[-2])
    grid = np.append(finite, top)
    bounded = np.minimum(np.nan_to_num(size, nan=0.0, posinf=top), top)
    above = np.clip(np.searchsorted(grid, bounded), 1, len(grid) - 1)
    down, up = bounded - grid[above - 1], grid[above] - bounded
    bits = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, above - 1)
    over, uz = bits == len(finite), code.endswith("uz")
    last = len(finite) - 1
    past = last if overflow == "saturate" else 0x80 if uz else {"e4m3fn": 0x7F, "e5m2": 0x7C}[code]
    nan = 0x80 if uz else {"e4m3fn": 0x7F, "e5m2": 0x7E}[code]
    bits = np.where(np.isnan(q), nan, np.where(over, past, bits))
    signed = np.signbit(q) & ((bits > 0) & (bits < 0x80) if uz else True)
    return np.where(signed, bits | 0x80, bits).astype(np.uint8)


def largest_of(code):
    return F(127) if code == "int8" else F(magnitudes(code)[-1])


def scales_of(x, code, vllm):
    largest = np.abs(x).max(-1, keepdims=True)
    return np.maximum(largest * (F(1) / largest_of(code)), FLOOR) if vllm else largest / largest_of(code)


def codes_of(x, code, scales, writer):
    """writer: divide, vllm, vllm_truncate. Finite x."""
    if writer != "divide":
        return codes_by(x, code, F(1) / scales, writer)
    with np.errstate(divide="ignore", invalid="ignore"):
        return codes_at(np.where(scales > 0, x / scales, F(0)), code, writer)


def codes_by(x, code, inverse, writer):
    return codes_at(x * inverse, code, writer)


def codes_at(q, code, writer):
    low = F(-128) if code == "int8" else -largest_of(code)
    if code != "int8":
        return cast(code, np.clip(q, low, largest_of(code)), "nan")
    if writer == "divide":
        q = np.rint(q)
    elif writer == "vllm":
        q = np.where(q >= 0, q + F(0.5), q - F(0.5))
    return np.trunc(np.clip(q, low, F(127))).astype(np.int8)


def whole(position):
    """Half away from zero, as truncation of what 1/2 was added to."""
    return np.trunc(np.where(position >= 0, position + F(0.5), position - F(0.5)))


def int4(x):
    """Nibbles two a byte, and the scale with the zero point in its low bits."""
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    scales = np.maximum((high - low) * (F(1) / F(15)), FLOOR)
    inverse = F(1) / scales
    zero = np.clip(whole(-low * inverse), F(0), F(15))
    fused = (x.astype(np.float64) * inverse + zero).astype(F)  # the product is exact
    nibbles = np.clip(whole(fused), F(0), F(15)).astype(np.uint8)
    stored = (scales.view(np.int32) & np.int32(-16)) | zero.astype(np.int32)
    return nibbles[..., 0::2] | nibbles[..., 1::2] << 4, stored.view(F)


def int4_values(codes, stored):
    bits = np.ascontiguousarray(stored).view(np.int32)
    zero, scales = (bits & 15).astype(F), (bits & np.int32(-16)).view(F)
    nibbles = np.stack([codes % 16, codes // 16], -1).reshape(*codes.shape[:-1], -1)
    with np.errstate(invalid="ignore", over="ignore"):
        return (nibbles.astype(F) - zero) * scales


def encode(x, text, writer="divide", overflow="nan"):
    """The planes of rows of the row type, as float32."""
    code, place, _ = parts_of(text)
    x = np.asarray(x, F)
    if code == "int4zp":
        codes, scales = int4(x)
    elif place.startswith("s"):
        q = x / F(place[1:])
        codes = np.clip(np.rint(q), -128, 127).astype(np.int8) if code == "int8" else cast(code, q, overflow)
        return {"codes": codes}
    else:
        scales = scales_of(x, code, writer != "divide")
        codes = codes_of(x, code, scales, writer)
    if place == "inline":
        return {"cells": np.concatenate([codes.view(np.uint8), np.ascontiguousarray(scales).view(np.uint8)], -1)}
    return {"codes": codes, "scales": scales}


def decode(planes, text):
    """float32 values, not yet of the row type."""
    code, place, _ = parts_of(text)
    if place == "inline":
        cells = np.ascontiguousarray(planes["cells"])
        codes, scales = np.ascontiguousarray(cells[..., :-4]), np.ascontiguousarray(cells[..., -4:]).view(F)
    else:
        codes, scales = planes["codes"], F(place[1:]) if place.startswith("s") else planes["scales"]
    if code == "int4zp":
        return int4_values(codes, scales)
    with np.errstate(invalid="ignore", over="ignore"):
        return values_of(code)[np.ascontiguousarray(codes).view(np.uint8)] * scales
