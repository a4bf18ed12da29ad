"""Codes per channel: groups of tokens, one scale and one zero per channel and group. A stored row is a group, token after
token; a cache shows a token as a group of one, whose scales and zeros are those of its group."""
import numpy as np

from .planes import Format, Plane
from .storage import from_float32, to_float32

TYPES = ("f32", "f16", "bf16")


def packed(codes, bits):
    """Codes, one a number, (..., n), as words."""
    stream = (codes[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & np.uint8(1)
    return np.packbits(stream.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little").view("<u4")


def unpacked(words, bits):
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return (stream.reshape(*words.shape[:-1], -1, bits) << np.arange(bits)).astype(np.int64).sum(-1)


class Channel:
    """channel:BITS:gTOKENS[:rRESIDUAL]:TYPE."""
    CODES_LATER = True

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name != "channel" or len(parts) not in (3, 4) or not parts[1].startswith("g") or parts[-1] not in TYPES:
            return None
        if len(parts) == 4 and not parts[2].startswith("r"):
            return None
        return Format(text, int(parts[0]), max(int(parts[1][1:]), 32 // int(parts[0])), parts[-1], Channel)

    @staticmethod
    def tokens(fmt):
        return int(fmt.text.split(":")[2][1:])

    @staticmethod
    def of_token(fmt):
        return Channel.parse(f"channel:{fmt.bits}:g1:{fmt.type}")

    @staticmethod
    def planes(fmt, row_elements):
        channels = row_elements // Channel.tokens(fmt)
        return [Plane("codes", "u32", row_elements * fmt.bits // 32), Plane("scales", fmt.type, channels),
                Plane("zeros", fmt.type, channels)]

    @staticmethod
    def decode(fmt, arrays):
        words, scales, zeros = arrays[0], to_float32(arrays[1], fmt.type), to_float32(arrays[2], fmt.type)
        codes = unpacked(words, fmt.bits)
        codes = codes.reshape(*codes.shape[:-1], Channel.tokens(fmt), -1).astype(np.float32)
        values = codes * scales[..., None, :] + zeros[..., None, :]
        return values.astype(np.float32).reshape(*values.shape[:-2], -1)

    level = decode

    @staticmethod
    def encode(fmt, values):
        """As KIVI and optimum-quanto do (reference/formats/formats.md, section G), every step rounded to the row type."""
        def rounded(x):
            return to_float32(from_float32(x, fmt.type), fmt.type)

        x = rounded(values)
        x = x.reshape(*x.shape[:-1], Channel.tokens(fmt), -1)
        zeros, top = x.min(-2) + np.float32(0), np.float32(2**fmt.bits - 1)
        scales = rounded(rounded(x.max(-2) - zeros) / top)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = rounded(rounded(x - zeros[..., None, :]) / scales[..., None, :])
        codes = np.where(scales[..., None, :] == 0, np.float32(0), np.clip(np.rint(at), 0, top)).astype(np.uint8)
        words = packed(codes.reshape(*codes.shape[:-2], -1), fmt.bits)
        return words, from_float32(scales, fmt.type), from_float32(zeros, fmt.type)
