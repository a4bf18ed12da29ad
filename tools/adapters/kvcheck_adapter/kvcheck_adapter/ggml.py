"""What ggml's formats have in common: one plane of bytes, blocks of 32 channels that begin with an f16 scale, some then with
an f16 minimum."""
import numpy as np

from .planes import Format, Plane

BLOCK = 32  # channels


class Blocks:
    """A family: name, bits of a code, block_bytes, has_minimum; encode_blocks(x, ...) and codes(blocks) of arrays
    (..., blocks, *)."""

    has_minimum = False

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
            values = cls.codes(blocks) * scales
            if cls.has_minimum:
                values = values + np.ascontiguousarray(blocks[..., 2:4]).view("<f2").astype(np.float32)
        return values.reshape(*stored.shape[:-1], -1)

    level = decode

    @classmethod
    def encode(cls, fmt, values, **writer):
        x = np.asarray(values, np.float32)
        blocks = cls.encode_blocks(x.reshape(*x.shape[:-1], -1, BLOCK), **writer)
        return (blocks.reshape(*x.shape[:-1], -1),)


def scale_bytes(step):
    """step (..., blocks), or a minimum, as two bytes of blocks."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(step.astype("<f2")[..., None]).view(np.uint8)


def reciprocal(step):
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(step == 0, np.float32(0), np.float32(1) / step)


def pack_nibbles(codes):
    """Codes (..., blocks, 32), channels 0 to 15 low and 16 to 31 high."""
    return (codes[..., :16] & 15) | (codes[..., 16:] & 15) << 4


def unpack_nibbles(packed):
    return np.concatenate([packed & 15, packed >> 4], -1)


def pack_five_bits(codes):
    """The fifth bits of the channels in 4 bytes, the first lowest, and nibbles."""
    return np.concatenate([np.packbits(codes >> 4, axis=-1, bitorder="little"), pack_nibbles(codes)], -1)


def unpack_five_bits(packed):
    fifth = np.unpackbits(np.ascontiguousarray(packed[..., :4]), axis=-1, bitorder="little")
    return unpack_nibbles(packed[..., 4:]) | fifth << 4


def largest_element(x):
    """(..., blocks): the first of largest magnitude."""
    first = np.abs(x).argmax(-1)[..., None]
    return np.take_along_axis(x, first, -1)[..., 0]


def encode_signed(x, half):
    """Scale and codes 0 to 2 half - 1 of finite x: the element of largest magnitude has the code 0."""
    step = largest_element(x) / np.float32(-half)
    steps = x * reciprocal(step)[..., None] + np.float32(half + 0.5)
    return step, np.minimum(np.trunc(steps), 2 * half - 1).astype(np.uint8)


def encode_from_minimum(x, levels):
    """Scale, minimum and codes 0 to levels of finite x."""
    least = x.min(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        step = (x.max(-1) - least) / np.float32(levels)
        steps = (x - least[..., None]) * reciprocal(step)[..., None] + np.float32(0.5)
        codes = np.minimum(np.trunc(np.nan_to_num(steps, nan=0, posinf=0)), levels).astype(np.uint8)
    return step, least, codes
