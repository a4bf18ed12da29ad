"""TurboQuant: per group the norm, and codes of the coordinates of the rotated unit vector (formats.md, section E)."""
import functools

import numpy as np

from . import turboquant_centroids
from .planes import Format, Plane
from .storage import from_float32, to_float32

CODEBOOKS = ("exact", "mlx_vlm", "vllm")


@functools.lru_cache(maxsize=64)
def parameters(text):
    """(centroids, signs) of a format."""
    _, bits, group, *rest = text.split(":")
    bits, d = int(bits), int(group[1:])
    codebook, seed = "exact", "s0"
    for part in rest[:-1]:
        if part in CODEBOOKS:
            codebook = part
        else:
            seed = part
    signs = np.ones(d, np.float32)
    if seed[0] == "w":
        words = np.array([int(seed[1 + 8 * i:9 + 8 * i], 16) for i in range(d // 32)], "<u4")
        signs = np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.float32) * 2 - 1
    elif seed != "plain":
        signs = np.random.default_rng(int(seed[1:]) + 7919 * d).choice([-1.0, 1.0], d).astype(np.float32)
    return turboquant_centroids.of(codebook, d, bits), signs


def hadamard(v):
    """Butterflies of strides 1, 2, 4, ... along the last axis."""
    stride = 1
    while stride < v.shape[-1]:
        pairs = v.reshape(*v.shape[:-1], -1, 2, stride)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        v = np.stack([low + high, low - high], -2).reshape(v.shape)
        stride *= 2
    return v


class Turboquant:
    """turboquant:BITS:gGROUP[:CODEBOOK][:SIGNS]:ROW_TYPE."""

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name != "turboquant" or len(parts) < 3 or not parts[0].isdigit() or not parts[1].startswith("g"):
            return None
        return Format(text, int(parts[0]), int(parts[1][1:]), parts[-1], Turboquant)

    @staticmethod
    def planes(fmt, head_dim):
        return [Plane("codes", "u32", head_dim * fmt.bits // 32), Plane("norms", "f16", head_dim // fmt.group)]

    @staticmethod
    def decode(fmt, arrays):
        words, norms = arrays[0], to_float32(arrays[1], "f16")
        centroids, signs = parameters(fmt.text)
        stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
        codes = (stream.reshape(*words.shape[:-1], -1, fmt.bits).astype(np.int64) << np.arange(fmt.bits)).sum(-1)
        y = centroids[codes].reshape(*codes.shape[:-1], -1, fmt.group)
        unit = hadamard(y) * np.float32(1 / np.sqrt(fmt.group)) * signs
        with np.errstate(invalid="ignore"):
            return (unit * norms[..., None]).reshape(codes.shape)

    level = decode

    @staticmethod
    def encode(fmt, values):
        """As mlx-vlm does on a CPU (turboquant=mlx_vlm), the norm summed in float64."""
        x = to_float32(from_float32(values, fmt.type), fmt.type)
        x = x.reshape(*x.shape[:-1], -1, fmt.group)
        centroids, signs = parameters(fmt.text)
        norms = np.sqrt((x.astype(np.float64) ** 2).sum(-1)).astype(np.float32)
        unit = x / np.maximum(norms, np.float32(1e-6))[..., None]
        y = hadamard(unit * signs) * np.float32(1 / np.sqrt(fmt.group))
        codes = (y[..., None] > (centroids[:-1] + centroids[1:]) / np.float32(2)).sum(-1).astype(np.uint8)
        stream = (codes.reshape(*x.shape[:-2], -1)[..., None] >> np.arange(fmt.bits, dtype=np.uint8)) & np.uint8(1)
        words = np.packbits(stream.reshape(*x.shape[:-2], -1), axis=-1, bitorder="little").view("<u4")
        with np.errstate(over="ignore"):
            return words, from_float32(norms, "f16")
