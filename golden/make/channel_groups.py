"""Codes per channel in numpy (reference/formats/formats.md, section G): groups of tokens, one scale and one zero per channel,
by writer. For check_golden.py; OpenVINO's writer, a transcription of quant_u8_by_channel_kernel
(src/plugins/intel_cpu/src/nodes/kernels/scaled_attn/attn_quant.cpp, 2025, vector code), also for make_channel.py.
"""
import re

import numpy as np

import regimes

TEXT = re.compile(r"channel:([248]):g(\d+)(?::r\d+)?:(f32|f16|bf16)")
F32 = np.float32


def parts_of(text):
    """(bits, tokens of a group, row type); None of another format."""
    match = TEXT.fullmatch(text)
    return match and (int(match[1]), int(match[2]), match[3])


def packed(codes, bits):
    """Codes, one a byte, (groups, n), as words."""
    stream = (codes[..., None] >> np.arange(bits, dtype=np.uint8)) & np.uint8(1)
    return np.packbits(stream.reshape(len(codes), -1), axis=-1, bitorder="little").view("<u4")


def unpacked(words, bits):
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return (stream.reshape(len(words), -1, bits) << np.arange(bits)).sum(-1).astype(F32)


def rounded(x, kind):
    return regimes.widen(regimes.to_storage(x, kind), kind).astype(F32)


def fused(x, multiplier, offset):
    """x * multiplier + offset, rounded once to float32: the product is exact in float64, the sum is rounded to odd."""
    product, offset = x.astype(np.float64) * multiplier, offset.astype(np.float64)
    total = product + offset
    part = total - product
    rest = (product - (total - part)) + (offset - part)
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(rest > 0, np.inf, -np.inf))
    return np.where((rest != 0) & even, odd, total).astype(F32)


def encode(tokens, bits, kind, writer):
    """tokens (groups, g, D), float32 of the row type: codes (groups, g, D), scales and zeros (groups, D) as float32."""
    top, low, high = F32(2**bits - 1), tokens.min(1), tokens.max(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if writer == "kivi":
            scale, zero = rounded(rounded(high - low, kind) / top, kind), low + F32(0)
            at = rounded(rounded(tokens - zero[:, None], kind) / scale[:, None], kind)
            at = np.where(scale[:, None] == 0, F32(0), at)
        elif writer == "hqq":
            inverse = np.where(high - low <= F32(1e-4), F32(1), (F32(1) / (high - low)) * top)
            inverse = np.minimum(inverse, F32(2e4))
            scale, zero = F32(1) / inverse, -low * inverse
            at = tokens * inverse[:, None] + zero[:, None]
        else:
            scale = (high - low) * (F32(1) / top)
            scale = np.where(scale == 0, F32(0.0001), scale)
            zero = -low / scale
            at = fused(tokens, (F32(1) / scale)[:, None], zero[:, None])
    return np.clip(np.rint(at), 0, top), rounded(scale, kind), rounded(zero, kind)


def decode(codes, scales, zeros, kind, writer):
    """Product and sum, or difference and product, each rounded to the row type."""
    scales, zeros = scales[:, None], zeros[:, None]
    if writer == "kivi":
        return rounded(rounded(codes * scales, kind) + zeros, kind)
    return np.where(scales == 0, zeros, rounded(rounded(codes - zeros, kind) * scales, kind))


def is_right(x, planes, text, writer):
    """x float32 (rows, n). Codes under a scale of 0 mean nothing."""
    bits, tokens, kind = parts_of(text)
    x = rounded(x, kind)
    codes, scales, zeros = encode(x.reshape(len(x), tokens, -1), bits, kind, writer)
    got = unpacked(planes["codes"].array, bits).reshape(codes.shape)
    return (np.array_equal(regimes.widen(planes["scales"].array, kind), scales)
            and np.array_equal(regimes.widen(planes["zeros"].array, kind), zeros)
            and bool(((got == codes) | (scales[:, None] == 0)).all()))


def rows_of(planes, text, writer):
    bits, tokens, kind = parts_of(text)
    codes = unpacked(planes["codes"].array, bits)
    scales, zeros = (regimes.widen(planes[name].array, kind).astype(F32) for name in ("scales", "zeros"))
    return decode(codes.reshape(len(codes), tokens, -1), scales, zeros, kind, writer).reshape(len(codes), -1)
