"""What formats of small floats in blocks with a scale have in common: a plane of codes, elements of four bits two a byte,
the lower channel low, and a plane of scales, a byte a block."""
import numpy as np

from .planes import Format, Plane
from .storage import STORED, from_float32, to_float32

E2M1 = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
VALUES = {"e2m1": np.concatenate([E2M1, -E2M1]),
          "e4m3": to_float32(np.arange(256, dtype=np.uint8), "f8e4m3fn"),
          "e5m2": to_float32(np.arange(256, dtype=np.uint8), "f8e5m2")}
LARGEST = {"e2m1": 6.0, "e4m3": 448.0, "e5m2": 57344.0}
_MIDDLES = (E2M1[1:] + E2M1[:-1]) / 2


class Blocks:
    """A family: element(fmt), its type of elements; scales(fmt, bytes), float32; writer(fmt, x, ...), the bytes of scales
    and the elements of x (..., blocks, channels) in units of them, and how e2m1 rounds ties."""

    @classmethod
    def planes(cls, fmt, head_dim):
        return [Plane("codes", "u8", head_dim * fmt.bits // 8), Plane("scales", "u8", head_dim // fmt.group)]

    @classmethod
    def decode(cls, fmt, arrays):
        codes = np.asarray(arrays[0])
        if fmt.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)
        with np.errstate(invalid="ignore", over="ignore"):
            scales = np.repeat(cls.scales(fmt, np.asarray(arrays[1])), fmt.group, -1)
            return VALUES[cls.element(fmt)][codes] * scales

    level = decode

    @classmethod
    def encode(cls, fmt, values, **writer):
        """Finite values."""
        x = to_float32(from_float32(values, fmt.type), fmt.type)
        scales, positions, ties = cls.writer(fmt, x.reshape(*x.shape[:-1], -1, fmt.group), **writer)
        positions = positions.reshape(x.shape)
        if fmt.bits == 8:
            return _saturated(positions, cls.element(fmt)), scales
        codes = e2m1_codes(positions, ties)
        return codes[..., ::2] | codes[..., 1::2] << 4, scales


def e2m1_codes(w, ties):
    """ties: even, and zero keeps its sign; down, and zero has none; up, and -0 has none."""
    size = np.abs(w)
    up = (size[..., None] >= _MIDDLES).sum(-1)
    down = (size[..., None] > _MIDDLES).sum(-1)
    if ties == "down":  # MLX: the first element whose distance in f32 is least
        with np.errstate(invalid="ignore"):
            distances = np.abs(size[..., None].astype(np.float32) - E2M1)
        down = np.where(size >= 2**24, distances.argmin(-1), down)
    codes = {"up": up, "down": down, "even": np.where(up % 2 == 0, up, down)}[ties]
    negative = {"up": w < 0, "down": (w < 0) & (codes != 0), "even": np.signbit(w)}[ties]
    return (codes | negative << 3).astype(np.uint8)


def _saturated(w, element):
    largest = np.float32(LARGEST[element])
    return from_float32(np.clip(w, -largest, largest), {"e4m3": "f8e4m3fn", "e5m2": "f8e5m2"}[element])


def rounded(x, kind):
    return to_float32(from_float32(x, kind), kind)


def row_type(text):
    return text if text in ("f32", "f16", "bf16") and text in STORED else None


def make(text, bits, group, kind, family):
    return Format(text, bits, group, kind, family) if row_type(kind) else None
