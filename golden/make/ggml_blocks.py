"""Blocks of ggml in numpy, a second writing beside the C++ of the project and beside gguf-py: what check_golden.py holds
golden files to. Blocks of 32 channels, little endian; every step in float32; the C reference's encoder."""
from typing import NamedTuple

import numpy as np

BLOCK = 32


def _halves(step):
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(step.astype("<f2")[..., None]).view(np.uint8)


def _inverse(step):
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(step == 0, np.float32(0), np.float32(1) / step)[..., None]


def _q8_0_encode(x):
    step = np.abs(x).max(-1) / np.float32(127)
    position = x * _inverse(step)
    size = np.abs(position)
    codes = np.copysign(np.floor(size) + (size - np.floor(size) >= np.float32(0.5)), position)
    return np.concatenate([_halves(step), codes.astype(np.int8).view(np.uint8)], -1)


def _q8_0_codes(blocks):
    return blocks[..., 2:].view(np.int8).astype(np.float32)


def _q4_0_encode(x):
    step = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0] / np.float32(-8)
    codes = np.minimum(np.floor(x * _inverse(step) + np.float32(8.5)), 15).astype(np.uint8)
    return np.concatenate([_halves(step), codes[..., :16] + 16 * codes[..., 16:]], -1)


def _q4_0_codes(blocks):
    return np.concatenate([blocks[..., 2:] % 16, blocks[..., 2:] // 16], -1).astype(np.float32) - 8


class Type(NamedTuple):
    block_bytes: int
    bits: int  # of a code
    encode: object  # float32 (..., blocks, 32) to bytes (..., blocks, block_bytes)
    codes: object  # the integers of blocks, float32


TYPES = {"q8_0": Type(34, 8, _q8_0_encode, _q8_0_codes), "q4_0": Type(18, 4, _q4_0_encode, _q4_0_codes)}


def encode(x, text):
    """The bytes of finite rows (..., head_dim)."""
    x = np.asarray(x, np.float32)
    return TYPES[text].encode(x.reshape(*x.shape[:-1], -1, BLOCK)).reshape(*x.shape[:-1], -1)


def judged(x, text):
    """Which bytes of encode(x, text) mean something: not the codes of a block whose step has no reciprocal, nor the sign
    of the scale of a block of zeros."""
    size = TYPES[text].block_bytes
    largest = np.abs(np.asarray(x, np.float32)).reshape(*x.shape[:-1], -1, BLOCK).max(-1)
    bytes_ = np.broadcast_to(largest[..., None] >= 2.0**-120, (*largest.shape, size)).copy()
    bytes_[..., :1] = True
    bytes_[..., 1] = largest > 0
    return bytes_.reshape(*x.shape[:-1], -1)


def decode(stored, text):
    blocks = np.ascontiguousarray(stored).reshape(*stored.shape[:-1], -1, TYPES[text].block_bytes)
    scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
    return (TYPES[text].codes(blocks) * scales).reshape(*stored.shape[:-1], -1)
