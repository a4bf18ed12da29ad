"""TurboQuant's inner-product codec: a bit less of TurboQuant's codes, and of what they leave the signs of its projection by a
matrix of normal deviates, and its norm (formats.md, section E)."""
import functools

import numpy as np

from .planes import Format, Plane
from .storage import from_float32, to_float32
from .turboquant import Turboquant


@functools.lru_cache(maxsize=8)
def projection(seed, d):
    """(d, d) float32, as mlx-vlm draws it."""
    return np.random.default_rng(seed + 1 + 2971 * d + 17).standard_normal((d, d), dtype=np.float32)


@functools.lru_cache(maxsize=64)
def parts(text):
    """(format of the codes or None, projection)."""
    _, _, bits, group, *rest = text.split(":")
    seed = next((int(part[1:]) for part in rest[:-1] if part[0] == "s"), 0)
    codes = Turboquant.parse(":".join(["turboquant", str(int(bits) - 1), group, *rest[:-1], "f32"])) if int(bits) > 1 else None
    return codes, projection(seed, int(group[1:]))


def ordered_sum(factors, matrix):
    """factors (..., d) times matrix (d, d), in float64 from the first term on."""
    total = np.zeros(factors.shape, np.float64)
    for index, row in enumerate(matrix.astype(np.float64)):
        total += factors[..., index:index + 1] * row
    return total


def norm_by_halves(rows):
    """float32 of the Euclidean norm, summed in float64, term i + d/2 to term i and so on."""
    sums = rows.astype(np.float64) ** 2
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return np.sqrt(sums[..., 0]).astype(np.float32)


class TurboquantProd:
    """turboquant:prod:BITS:gGROUP[:CODEBOOK][:sSEED]:ROW_TYPE."""

    @staticmethod
    def parse(text):
        name, *rest = text.split(":")
        if name != "turboquant" or len(rest) < 4 or rest[0] != "prod" or not rest[1].isdigit() or not rest[2].startswith("g"):
            return None
        return Format(text, int(rest[1]), int(rest[2][1:]), rest[-1], TurboquantProd)

    @staticmethod
    def planes(fmt, head_dim):
        groups = head_dim // fmt.group
        return [Plane("codes", "u32", head_dim * fmt.bits // 32), Plane("norms", "f16", groups),
                Plane("residual_norms", "f16", groups)]

    @staticmethod
    def unit(fmt, words):
        """Q(u), (..., groups, group) float32, of the words of codes."""
        codes, _ = parts(fmt.text)
        groups = words.shape[-1] * 32 // (fmt.group * (fmt.bits - 1))
        ones = from_float32(np.ones((*words.shape[:-1], groups), np.float32), "f16")
        return codes.decode([words, ones]).reshape(*words.shape[:-1], groups, fmt.group)

    @staticmethod
    def decode(fmt, arrays):
        words, norms, residual_norms = arrays[0], to_float32(arrays[1], "f16"), to_float32(arrays[2], "f16")
        shape = (*norms.shape, fmt.group)
        of_codes = words.shape[-1] * (fmt.bits - 1) // fmt.bits
        bits = np.unpackbits(np.ascontiguousarray(words[..., of_codes:]).view(np.uint8), axis=-1, bitorder="little")
        signs = bits.reshape(shape).astype(np.float64) * 2 - 1
        unit = TurboquantProd.unit(fmt, words[..., :of_codes]) if of_codes else np.zeros(shape, np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            factor = np.float32(np.sqrt(np.pi / 2) / fmt.group) * residual_norms
            of_signs = factor[..., None] * ordered_sum(signs, parts(fmt.text)[1]).astype(np.float32)
            return (norms[..., None] * (unit + of_signs)).reshape(*norms.shape[:-1], -1)

    level = decode

    @staticmethod
    def encode(fmt, values):
        """As mlx-vlm does on a CPU, the norms and projections summed in float64."""
        x = to_float32(from_float32(values, fmt.type), fmt.type)
        groups = x.reshape(*x.shape[:-1], -1, fmt.group)
        codes, matrix = parts(fmt.text)
        norms = norm_by_halves(groups)
        residual = groups / np.maximum(norms, np.float32(1e-6))[..., None]
        planes = []
        if codes is not None:
            words = codes.encode(x)[0]
            planes.append(words)
            residual = residual - TurboquantProd.unit(fmt, words)
        bits = (ordered_sum(residual.astype(np.float64), matrix.T) >= 0).astype(np.uint8)
        planes.append(np.packbits(bits.reshape(*x.shape[:-1], -1), axis=-1, bitorder="little").view("<u4"))
        with np.errstate(over="ignore"):
            return np.concatenate(planes, -1), from_float32(norms, "f16"), from_float32(norm_by_halves(residual), "f16")
