"""Affine codes of a cache that keeps its newest tokens as vectors (KIVI's values). Its planes are those of one token, in the
residual (codes, scales and biases 0) or out of it (the vector 0)."""
import numpy as np

from .channel import packed, unpacked
from .planes import Format, Plane
from .storage import from_float32, to_float32

TYPES = ("f32", "f16", "bf16")


class ResidualAffine:
    """affine:BITS:gGROUP:rRESIDUAL:TYPE."""
    CODES_LATER = True

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name != "affine" or len(parts) != 4 or not parts[1].startswith("g") or parts[3] not in TYPES:
            return None
        if not parts[2].startswith("r") or not parts[2][1:].isdigit():
            return None
        return Format(text, int(parts[0]), int(parts[1][1:]), parts[3], ResidualAffine)

    @staticmethod
    def residual(fmt):
        """Tokens that are kept as vectors."""
        return int(fmt.text.split(":")[3][1:])

    @staticmethod
    def planes(fmt, head_dim):
        groups = head_dim // fmt.group
        return [Plane("codes", "u32", head_dim * fmt.bits // 32), Plane("scales", fmt.type, groups),
                Plane("biases", fmt.type, groups), Plane("vectors", fmt.type, head_dim)]

    @staticmethod
    def decode(fmt, arrays):
        words, scales, biases, vectors = arrays[0], *(to_float32(array, fmt.type) for array in arrays[1:])
        codes = unpacked(words, fmt.bits).astype(np.float32)
        scales, biases = (np.repeat(part, fmt.group, -1) for part in (scales, biases))
        values = (codes * scales + biases).astype(np.float32)
        return np.where((scales == 0) & (biases == 0), vectors, values)

    level = decode

    @staticmethod
    def kept(fmt, values):
        """The planes of tokens in the residual: the vectors themselves."""
        groups = values.shape[-1] // fmt.group
        words = np.zeros((*values.shape[:-1], values.shape[-1] * fmt.bits // 32), np.uint32)
        vectors = from_float32(np.asarray(values, np.float32), fmt.type)
        scales = np.zeros((*values.shape[:-1], groups), vectors.dtype)
        return words, scales, scales.copy(), vectors

    @staticmethod
    def encode(fmt, values):
        """Of tokens that have left the residual, as KIVI and optimum-quanto do (reference/formats/formats.md, section A), every
        step rounded to the row type."""
        def rounded(x):
            return to_float32(from_float32(x, fmt.type), fmt.type)

        x = rounded(values)
        groups = x.reshape(*x.shape[:-1], -1, fmt.group)
        biases, top = groups.min(-1) + np.float32(0), np.float32(2**fmt.bits - 1)
        scales = rounded(rounded(groups.max(-1) - biases) / top)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = rounded(rounded(groups - biases[..., None]) / scales[..., None])
        codes = np.where(scales[..., None] == 0, np.float32(0), np.clip(np.rint(at), 0, top)).astype(np.uint8)
        vectors = from_float32(np.zeros_like(x), fmt.type)
        return packed(codes.reshape(x.shape), fmt.bits), from_float32(scales, fmt.type), from_float32(biases, fmt.type), vectors
