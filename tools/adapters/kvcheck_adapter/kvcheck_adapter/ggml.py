"""What ggml's formats have in common: one plane of bytes, blocks of 32 channels that begin with an f16 scale."""
import numpy as np

from .planes import Format, Plane

BLOCK = 32  # channels


class Blocks:
    """A family: name, bits of a code, block_bytes; encode_blocks(x, ...) and codes(blocks) of arrays (..., blocks, *)."""

    @classmethod
    def parse(cls, text):
        return Format(text, cls.bits, BLOCK, "f32", cls) if text == cls.name else None

    @classmethod
    def planes(cls, fmt, head_dim):
        return [Plane("blocks", "u8", head_dim // BLOCK * cls.block_bytes)]

    @classmethod
    def decode(cls, fmt, arrays):
        stored = np.asarray(arrays[0])
        blocks = stored.reshape(*stored.shape[:-1], -1, cls.block_bytes)
        scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
        with np.errstate(invalid="ignore"):
            return (cls.codes(blocks) * scales).reshape(*stored.shape[:-1], -1)

    level = decode

    @classmethod
    def encode(cls, fmt, values, **writer):
        x = np.asarray(values, np.float32)
        blocks = cls.encode_blocks(x.reshape(*x.shape[:-1], -1, BLOCK), **writer)
        return (blocks.reshape(*x.shape[:-1], -1),)


def scale_bytes(step):
    """step (..., blocks) as the first two bytes of blocks."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(step.astype("<f2")[..., None]).view(np.uint8)


def reciprocal(step):
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(step == 0, np.float32(0), np.float32(1) / step)
