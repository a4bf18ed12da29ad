"""Codes of 8 bits times one float32 scale: of the vector, beside the codes or after them, or one number of the text, for all
or for each head."""
import numpy as np

from .planes import Format, Plane
from .storage import STORED, from_float32, to_float32

BLOCK = 4  # channels


def _magnitudes(mantissa_bits, bias, count):
    """The values of codes 0 to count - 1."""
    codes = np.arange(count)
    field, mantissa = codes >> mantissa_bits, codes & (1 << mantissa_bits) - 1
    one = np.where(field == 0, 0, 1 << mantissa_bits)
    return np.ldexp((mantissa + one).astype(np.float64), np.maximum(field, 1) - bias - mantissa_bits)


# Finite magnitudes; the code after the last is NaN or infinity, of the fnuz types 0x80 is NaN and there is no -0.
MAGNITUDES = {"e4m3fn": _magnitudes(3, 7, 127), "e5m2": _magnitudes(2, 15, 124),
              "e4m3fnuz": _magnitudes(3, 8, 128), "e5m2fnuz": _magnitudes(2, 16, 128)}


def _values(code):
    table = np.full(256, np.nan, np.float32)
    if code == "int8":
        return np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)
    finite = MAGNITUDES[code].astype(np.float32)
    table[:len(finite)] = finite
    negative = -finite if not code.endswith("uz") else -finite[1:]
    start = 128 if not code.endswith("uz") else 129
    table[start:start + len(negative)] = negative
    if code == "e5m2":
        table[0x7C], table[0xFC] = np.inf, -np.inf
    return table


VALUES = {code: _values(code) for code in (*MAGNITUDES, "int8")}


def _nearest(code, q):
    """fp8 codes of positions within the largest; 0 of NaN."""
    magnitudes = MAGNITUDES[code]
    size = np.abs(np.nan_to_num(q, nan=0.0)).astype(np.float64)
    above = np.clip(np.searchsorted(magnitudes, size), 1, len(magnitudes) - 1)
    low, high = magnitudes[above - 1], magnitudes[above]
    middle = (low + high) / 2
    codes = np.where((size > middle) | ((size == middle) & (above % 2 == 0)), above, above - 1)
    has_sign = np.signbit(q) & ~np.isnan(q) & ((codes > 0) | (not code.endswith("uz")))
    return (codes | np.where(has_sign, 0x80, 0)).astype(np.uint8)


def _given(place, shape):
    """The scales of a text, for vectors (rows, heads, columns, n), or (vectors, n) of one token after the other."""
    scales = np.float32(place[1:].split("/"))
    if len(scales) == 1:
        return np.full((*shape[:-1], 1), scales[0])
    if len(shape) == 4:
        return np.broadcast_to(scales[:, None, None], (*shape[:-1], 1))
    return np.resize(scales, (shape[0], 1))


class Scaled:
    """fp8:CODE:PLACE:TYPE and int8:PLACE:TYPE."""

    @staticmethod
    def parts(fmt):
        name, *parts = fmt.text.split(":")
        return ("int8", *parts) if name == "int8" else tuple(parts)

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name == "fp8" and parts and parts[0] in MAGNITUDES:
            parts = parts[1:]
        elif name != "int8":
            return None
        if len(parts) != 2 or not (parts[0] in ("token", "inline") or parts[0][:1] in ("s", "h")) or parts[1] not in STORED:
            return None
        return Format(text, 8, BLOCK, parts[1], Scaled)

    @staticmethod
    def planes(fmt, head_dim):
        code, place, _ = Scaled.parts(fmt)
        if place == "inline":
            return [Plane("cells", "u8", head_dim + 4)]
        codes = Plane("codes", "i8" if code == "int8" else "u8", head_dim)
        return [codes, Plane("scales", "f32", 1)] if place == "token" else [codes]

    @staticmethod
    def decode(fmt, arrays):
        code, place, _ = Scaled.parts(fmt)
        codes = np.ascontiguousarray(arrays[0])
        if place == "inline":
            scales = np.ascontiguousarray(codes[..., -4:]).view("<f4")
            codes = codes[..., :-4]
        else:
            scales = np.asarray(arrays[1], np.float32) if place == "token" else _given(place, codes.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            return to_float32(from_float32(VALUES[code][np.ascontiguousarray(codes).view(np.uint8)] * scales, fmt.type), fmt.type)

    level = decode

    @staticmethod
    def encode(fmt, values, vllm=False, truncate=False):
        """x over the scale, ties to even; or as vLLM's kernel for a scale per token and head: at least 1e-6, x times its
        reciprocal, integers half away from zero (truncated before pull request 45361). Finite x, of a given scale within
        its range."""
        code, place, _ = Scaled.parts(fmt)
        x = to_float32(from_float32(values, fmt.type), fmt.type)
        largest = np.float32(127 if code == "int8" else MAGNITUDES[code][-1])
        if place not in ("token", "inline"):
            scales = _given(place, x.shape)
        elif vllm:
            scales = np.maximum(np.abs(x).max(-1, keepdims=True) * (np.float32(1) / largest), np.float32(1e-6))
        else:
            scales = np.abs(x).max(-1, keepdims=True) / largest
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            q = np.where(scales == 0, np.float32(0), x * (np.float32(1) / scales) if vllm else x / scales)
        q = np.clip(q, -largest - (code == "int8"), largest).astype(np.float32)
        if code != "int8":
            codes = _nearest(code, q)
        elif vllm:
            half = np.float32(0 if truncate else 0.5)
            codes = np.trunc(np.clip(np.where(q >= 0, q + half, q - half), -128, 127)).astype(np.int8)
        else:
            codes = np.rint(q).astype(np.int8)
        if place == "inline":
            return (np.concatenate([codes.view(np.uint8), np.ascontiguousarray(scales, "<f4").view(np.uint8)], -1),)
        return (codes, scales.astype("<f4")) if place == "token" else (codes,)
