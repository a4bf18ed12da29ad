"""The uniform codes that vLLM's TurboQuant writes of V, in numpy: a transcription of _store_quantized_value in
vllm/v1/attention/ops/triton_turboquant_store.py and of the reading in triton_turboquant_decode.py, vLLM 0.33.0.

Divisions are as Triton compiles them: by the constant, a product with its reciprocal; by the scale, a product with a
reciprocal that may be one unit off (`unit` -1, 0 or 1).
"""
import numpy as np

F = np.float32
FLOOR = F(1e-8)


def parts_of(text):
    """Bits, place and row type of uniform:BITS:PLACE:TYPE; None for other formats."""
    name, *parts = text.split(":")
    return (int(parts[0]), *parts[1:]) if name == "uniform" else None


def parameters(x, bits):
    """Scale, before it is stored as float16, and minimum."""
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    scale = (high - low) * (F(1) / F(2**bits - 1))
    return np.where(scale > FLOOR, scale, FLOOR), low


def codes_of(x, bits, unit=0):
    scale, low = parameters(x, bits)
    inverse = F(1) / scale
    if unit:
        inverse = np.nextafter(inverse, F(0) if unit < 0 else F(np.inf))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.clip(np.trunc((x - low) * inverse + F(0.5)), 0, 2**bits - 1).astype(np.uint8)


def pack(codes, bits):
    """Eight codes in `bits` bytes, the first in the lowest bits."""
    groups = codes.reshape(*codes.shape[:-1], -1, 8).astype(np.uint32)
    words = (groups << np.arange(0, 8 * bits, bits, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    return words[..., None].view(np.uint8)[..., :bits].reshape(*codes.shape[:-1], -1)


def unpack(packed, bits):
    groups = packed.reshape(*packed.shape[:-1], -1, bits).astype(np.uint32)
    words = (groups << (8 * np.arange(bits, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    codes = words[..., None] >> np.arange(0, 8 * bits, bits, dtype=np.uint32) & np.uint32(2**bits - 1)
    return codes.reshape(*packed.shape[:-1], -1)


def encode(x, text, unit=0):
    """The planes of finite rows of the row type, as float32."""
    bits, place, _ = parts_of(text)
    x = np.asarray(x, F)
    scale, low = parameters(x, bits)
    with np.errstate(over="ignore"):
        stored = [pack(codes_of(x, bits, unit), bits), scale.astype(np.float16), low.astype(np.float16)]
    if place == "inline":
        return {"cells": np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in stored], -1)}
    return dict(zip(("codes", "scales", "zeros"), stored))


def decode(planes, text):
    """float32 values, not yet of the row type: code times scale is exact, and the sum rounded once."""
    bits, place, _ = parts_of(text)
    if place == "inline":
        cells = np.ascontiguousarray(planes["cells"])
        scale, zero = (np.ascontiguousarray(cells[..., -4:]).view(np.float16)[..., i : i + 1] for i in (0, 1))
        codes = unpack(np.ascontiguousarray(cells[..., :-4]), bits)
    else:
        codes, scale, zero = unpack(planes["codes"], bits), planes["scales"], planes["zeros"]
    with np.errstate(invalid="ignore", over="ignore"):
        return (codes.astype(F) * scale.astype(F) + zero.astype(F)).astype(F)
