"""Affine codes in groups of channels, as MLX writes and reads them, and as KIVI writes V: a second writing beside the C++ of the project."""
import numpy as np

import channel_groups
from regimes import rounded


def parameters_of(text):
    """Bits, channels of a group, type of scales and biases."""
    _, bits, group, kind = text.split(":")
    return int(bits), int(group[1:]), kind


def unpack(words, bits, head_dim):
    """Codes (..., head_dim) from one bit stream per row, lowest bit first."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return (stream.reshape(*words.shape[:-1], head_dim, bits) << np.arange(bits)).sum(-1)


def pack(codes, bits):
    """The bytes of such a stream."""
    stream = (codes.astype(np.int64)[..., None] >> np.arange(bits)) & 1
    return np.packbits(stream.reshape(*codes.shape[:-1], -1).astype(np.uint8), axis=-1, bitorder="little")


def values_of(codes, scales, biases, text):
    """rnd(rnd(c s) + z) in the row type, as float64.

    The product of a code and a scale is exact in float64. A sum is not, and where it is rounded to float32 first the
    second rounding changes nothing: float64 and float32 have more than twice the digits of what is rounded next.
    """
    _, group, kind = parameters_of(text)
    with np.errstate(over="ignore", invalid="ignore"):
        product = rounded(codes * np.repeat(scales, group, -1), kind)
        return rounded(product + np.repeat(biases, group, -1), kind)


def encode(x, text, writer="mlx_cpu"):
    """Codes, scales, biases of finite rows; every step in float32, of writer "kivi" in the row type."""
    bits, group, kind = parameters_of(text)
    if writer == "kivi":
        groups = rounded(x, kind).astype(np.float32).reshape(-1, group, 1)
        codes, scales, biases = channel_groups.encode(groups, bits, kind, "kivi")
        by_row = (*x.shape[:-1], -1)
        return codes.reshape(by_row), scales.reshape(by_row), biases.reshape(by_row)
    one, levels = np.float32, np.float32(2**bits - 1)
    x = x.astype(np.float32).reshape(*x.shape[:-1], -1, group)
    high, low = x.max(-1), x.min(-1)
    scale = np.maximum((high - low) / levels, one(1e-7))
    negative = np.abs(low) > np.abs(high)
    scale = np.where(negative, scale, -scale)
    edge = np.where(negative, low, high)
    steps = np.rint(edge / scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(steps != 0, edge / steps, scale)
    bias = np.where(steps != 0, edge, one(0))
    codes = np.clip(np.rint((x - bias[..., None]) / scale[..., None]), 0, levels)
    return codes.reshape(*x.shape[:-2], -1), rounded(scale, kind), rounded(bias, kind)
