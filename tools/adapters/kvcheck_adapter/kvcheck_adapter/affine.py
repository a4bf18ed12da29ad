"""Affine formats: code * scale + bias, per group of channels one scale and one bias."""
import numpy as np

from .planes import Format, Plane
from .storage import STORED, from_float32, to_float32


class Affine:
    """affine:BITS:gGROUP:TYPE."""

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name != "affine" or len(parts) != 3 or not parts[1].startswith("g") or parts[2] not in STORED:
            return None
        return Format(text, int(parts[0]), int(parts[1][1:]), parts[2], Affine)

    @staticmethod
    def planes(fmt, head_dim):
        groups = head_dim // fmt.group
        return [Plane("codes", "u32", head_dim * fmt.bits // 32), Plane("scales", fmt.type, groups),
                Plane("biases", fmt.type, groups)]

    @staticmethod
    def decode(fmt, arrays):
        words, scales, biases = arrays[0], to_float32(arrays[1], fmt.type), to_float32(arrays[2], fmt.type)
        stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
        stream = stream.reshape(*words.shape[:-1], -1, fmt.bits)
        codes = (stream << np.arange(fmt.bits)).astype(np.int64).sum(-1)
        return (codes * np.repeat(scales, fmt.group, -1) + np.repeat(biases, fmt.group, -1)).astype(np.float32)

    @staticmethod
    def level(fmt, arrays):
        """A group of equal channels has them as its bias."""
        array = arrays[2]
        return to_float32(array, fmt.type) if STORED[fmt.type] == array.dtype else np.asarray(array, np.float32)

    @staticmethod
    def encode(fmt, values):
        """As MLX does on a CPU (reference/formats/formats.md, section A)."""
        levels = np.float32(2**fmt.bits - 1)
        x = to_float32(from_float32(values, fmt.type), fmt.type)
        head_dim = x.shape[-1]
        x = x.reshape(*x.shape[:-1], head_dim // fmt.group, fmt.group)  # there may be no rows
        high, low = x.max(-1), x.min(-1)
        scale = np.maximum((high - low) / levels, np.float32(1e-7))
        below = np.abs(low) > np.abs(high)
        scale, edge = np.where(below, scale, -scale), np.where(below, low, high)
        steps = np.rint(edge / scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(steps != 0, edge / steps, scale)
        bias = np.where(steps != 0, edge, np.float32(0))
        codes = np.clip(np.rint((x - bias[..., None]) / scale[..., None]), 0, levels).astype(np.uint8)
        stream = (codes.reshape(*x.shape[:-2], head_dim)[..., None] >> np.arange(fmt.bits, dtype=np.uint8)) & np.uint8(1)
        words = np.packbits(stream.reshape(*x.shape[:-2], head_dim * fmt.bits), axis=-1, bitorder="little").view("<u4")
        return words, from_float32(scale, fmt.type), from_float32(bias, fmt.type)
