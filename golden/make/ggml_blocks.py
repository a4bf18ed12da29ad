"""Blocks of ggml in numpy, a second writing beside the C++ of the project and beside gguf-py: what check_golden.py holds
golden files to. Blocks of 32 channels, little endian; every step in float32; the C reference's encoder,
and of q8_0 that of x86 too."""
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


def _q8_0_encode_x86(x):
    largest = np.abs(x).max(-1)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(largest == 0, np.float32(0), np.float32(127) / largest)[..., None]
    return np.concatenate([_halves(largest / np.float32(127)), np.rint(x * inverse).astype(np.int8).view(np.uint8)], -1)


def _q8_0_codes(blocks):
    return blocks[..., 2:].view(np.int8).astype(np.float32)


def _packed(codes, bits):
    """Nibbles of channels 0 to 15 below those of 16 to 31; before them the fifth bits of all, where there are any."""
    nibbles = codes[..., :16] % 16 + 16 * (codes[..., 16:] % 16)
    if bits == 4:
        return nibbles
    fifth = (codes // 16).reshape(*codes.shape[:-1], 4, 8) * 2 ** np.arange(8)
    return np.concatenate([fifth.sum(-1).astype(np.uint8), nibbles], -1)


def _unpacked(packed, bits):
    nibbles = packed[..., -16:]
    codes = np.concatenate([nibbles % 16, nibbles // 16], -1).astype(np.float32)
    if bits == 4:
        return codes
    fifth = packed[..., :4, None] // 2 ** np.arange(8) % 2
    return codes + np.float32(16) * fifth.reshape(codes.shape).astype(np.float32)


def _signed(bits):
    """Codes from -half on, which that of largest magnitude gets."""
    half = 2 ** (bits - 1)

    def encode(x):
        step = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)[..., 0] / np.float32(-half)
        codes = np.minimum(np.floor(x * _inverse(step) + np.float32(half + 0.5)), 2 * half - 1).astype(np.uint8)
        return np.concatenate([_halves(step), _packed(codes, bits)], -1)

    return encode, lambda blocks: _unpacked(blocks[..., 2:], bits) - half


def _from_minimum(bits):
    levels = 2**bits - 1

    def encode(x):
        low = x.min(-1)
        step = (x.max(-1) - low) / np.float32(levels)
        codes = np.minimum(np.floor((x - low[..., None]) * _inverse(step) + np.float32(0.5)), levels).astype(np.uint8)
        return np.concatenate([_halves(step), _halves(low), _packed(codes, bits)], -1)

    return encode, lambda blocks: _unpacked(blocks[..., 4:], bits)


IQ4_NL = np.float32([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def _iq4_nl_encode(x):
    """After quantize_row_iq4_nl_ref of ggml/src/ggml-quants.c (ggml 0.21.0), which writes KV caches: no search of scales.

    Distances to all entries, of which the last smallest one counts; the sums in the order of the channels."""
    largest = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)
    is_small = np.abs(largest) < np.float32(1e-15)
    first = np.where(is_small, np.float32(1), largest / np.float32(-127))
    position = (x * (np.float32(1) / first)).clip(-127, 113)
    distance = np.abs(position[..., None] - IQ4_NL)
    codes = (15 - distance[..., ::-1].argmin(-1)).astype(np.uint8)
    entry = IQ4_NL[codes]
    above = below = np.zeros(x.shape[:-1], np.float32)
    for i in range(BLOCK):
        weight = x[..., i] * x[..., i]
        above = above + weight * entry[..., i] * x[..., i]
        below = below + weight * entry[..., i] * entry[..., i]
    scale = np.where(is_small[..., 0], np.float32(0), above / np.where(below > 0, below, np.float32(1)))
    return np.concatenate([_halves(scale), _packed(codes, 4)], -1)


def _is_between_halves(x):
    """Whether sums in another order may make the scale of iq4_nl another number of f16 (reference/formats/formats.md)."""
    entry = IQ4_NL[_unpacked(_iq4_nl_encode(x)[..., 2:], 4).astype(int)].astype(np.float64)
    x = x.astype(np.float64)
    below = (x * x * entry * entry).sum(-1)
    scale = (x**3 * entry).sum(-1) / np.where(below > 0, below, 1)
    with np.errstate(over="ignore"):
        return (scale * (1 - 70 * 2.0**-24)).astype(np.float16) != (scale * (1 + 70 * 2.0**-24)).astype(np.float16)


class Type(NamedTuple):
    block_bytes: int
    bits: int  # of a code
    encode: object  # float32 (..., blocks, 32) to bytes (..., blocks, block_bytes)
    codes: object  # the integers of blocks, float32
    has_minimum: bool = False


TYPES = {"q8_0": Type(34, 8, _q8_0_encode, _q8_0_codes), "q4_0": Type(18, 4, *_signed(4)), "q5_0": Type(22, 5, *_signed(5)),
         "q4_1": Type(20, 4, *_from_minimum(4), True), "q5_1": Type(24, 5, *_from_minimum(5), True),
         "iq4_nl": Type(18, 4, _iq4_nl_encode, lambda blocks: IQ4_NL[_unpacked(blocks[..., 2:], 4).astype(int)])}


def encode(x, text, x86=False):
    """The bytes of finite rows (..., head_dim). x86: of the vector code that writes llama.cpp's caches, where it differs."""
    x = np.asarray(x, np.float32)
    function = _q8_0_encode_x86 if x86 and text == "q8_0" else TYPES[text].encode
    return function(x.reshape(*x.shape[:-1], -1, BLOCK)).reshape(*x.shape[:-1], -1)


def judged(x, text):
    """Which bytes of encode(x, text) mean something: not the codes of a block whose step has no reciprocal (of iq4_nl: whose
    scale is 0), nor those with the sign of a scale or minimum of 0, nor a scale of iq4_nl that depends on the order of sums."""
    size = TYPES[text].block_bytes
    blocks = np.asarray(x, np.float32).reshape(*x.shape[:-1], -1, BLOCK)
    largest = np.abs(blocks).max(-1)
    if TYPES[text].has_minimum:
        low = blocks.min(-1)
        span = blocks.max(-1) - low
        bytes_ = np.broadcast_to(((span == 0) | (span >= 2.0**-120))[..., None], (*largest.shape, size)).copy()
        bytes_[..., :3] = True
        bytes_[..., 3] = low != 0
        return bytes_.reshape(*x.shape[:-1], -1)
    smallest = 2.0**-17 if text == "iq4_nl" else 2.0**-120
    bytes_ = np.broadcast_to(largest[..., None] >= smallest, (*largest.shape, size)).copy()
    bytes_[..., :1] = True
    bytes_[..., 1] = largest > 0
    if text == "iq4_nl":
        bytes_[..., :2] &= _is_between_halves(blocks)[..., None] == 0
    return bytes_.reshape(*x.shape[:-1], -1)


def decode(stored, text):
    blocks = np.ascontiguousarray(stored).reshape(*stored.shape[:-1], -1, TYPES[text].block_bytes)
    scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
    values = TYPES[text].codes(blocks) * scales
    if TYPES[text].has_minimum:
        values = values + np.ascontiguousarray(blocks[..., 2:4]).view("<f2").astype(np.float32)
    return values.reshape(*stored.shape[:-1], -1)
