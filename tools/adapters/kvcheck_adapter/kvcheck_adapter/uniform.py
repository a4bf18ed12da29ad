"""Uniform codes of V as vLLM's turboquant cache types have them: code * scale + minimum, both float16, per vector."""
import numpy as np

from .planes import Format, Plane
from .storage import STORED, from_float32, to_float32

BLOCK = 8  # channels


def _parts(fmt):
    _, bits, place, _ = fmt.text.split(":")
    return int(bits), place == "inline"


def _pack(codes, bits):
    words = codes.reshape(*codes.shape[:-1], -1, BLOCK).astype("<u4") << np.arange(0, BLOCK * bits, bits, dtype="<u4")
    packed = words.sum(-1, dtype="<u4")[..., None].view(np.uint8)[..., :bits]
    return np.ascontiguousarray(packed).reshape(*codes.shape[:-1], -1)


def _unpack(packed, bits):
    groups = packed.reshape(*packed.shape[:-1], -1, bits).astype("<u4") << (8 * np.arange(bits, dtype="<u4"))
    words = groups.sum(-1, dtype="<u4")[..., None]
    codes = words >> np.arange(0, BLOCK * bits, bits, dtype="<u4") & np.uint32((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)


class Uniform:
    """uniform:BITS:PLACE:TYPE."""

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name != "uniform" or len(parts) != 3 or parts[0] not in ("3", "4"):
            return None
        if parts[1] not in ("token", "inline") or parts[2] not in STORED:
            return None
        return Format(text, int(parts[0]), BLOCK, parts[2], Uniform)

    @staticmethod
    def planes(fmt, head_dim):
        bits, is_inline = _parts(fmt)
        code_bytes = head_dim * bits // 8
        if is_inline:
            return [Plane("cells", "u8", code_bytes + 4)]
        return [Plane("codes", "u8", code_bytes), Plane("scales", "f16", 1), Plane("zeros", "f16", 1)]

    @staticmethod
    def decode(fmt, arrays):
        bits, is_inline = _parts(fmt)
        codes = np.ascontiguousarray(arrays[0])
        if is_inline:
            halves, codes = np.ascontiguousarray(codes[..., -4:]).view("<f2"), codes[..., :-4]
            scale, minimum = halves[..., :1], halves[..., 1:]
        else:
            scale, minimum = (np.asarray(plane).view("<f2") for plane in arrays[1:])
        codes = _unpack(np.ascontiguousarray(codes), bits).astype(np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            values = codes * scale.astype(np.float32) + minimum.astype(np.float32)
            return to_float32(from_float32(values, fmt.type), fmt.type)

    level = decode

    @staticmethod
    def encode(fmt, values):
        """Finite x."""
        bits, is_inline = _parts(fmt)
        x = to_float32(from_float32(values, fmt.type), fmt.type)
        highest = np.float32((1 << bits) - 1)
        minimum = x.min(-1, keepdims=True)
        step = (x.max(-1, keepdims=True) - minimum) * (np.float32(1) / highest)
        scale = np.where(step > np.float32(1e-8), step, np.float32(1e-8)).astype(np.float32)
        positions = (x - minimum) * (np.float32(1) / scale) + np.float32(0.5)
        codes = _pack(np.clip(np.trunc(positions), 0, highest).astype(np.uint8), bits)
        with np.errstate(over="ignore"):
            halves = scale.astype("<f2"), minimum.astype("<f2")
        if is_inline:
            return (np.concatenate([codes, *(half.view(np.uint8) for half in halves)], -1),)
        return codes, *halves
