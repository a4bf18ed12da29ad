"""vLLM's nibbles with a scale and a zero point in one float32 per vector: (nibble - zero point) * scale."""
import numpy as np

from .planes import Format, Plane
from .storage import STORED, from_float32, to_float32

BLOCK = 8  # channels


def _nibbles(position):
    """To nearest within 0 to 15, half away from zero."""
    half = np.where(position >= 0, np.float32(0.5), np.float32(-0.5))
    return np.clip(np.trunc(position + half), 0, 15)


class Int4zp:
    """int4zp:PLACE:TYPE."""

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name != "int4zp" or len(parts) != 2 or parts[0] not in ("token", "inline") or parts[1] not in STORED:
            return None
        return Format(text, 4, BLOCK, parts[1], Int4zp)

    @staticmethod
    def planes(fmt, head_dim):
        if ":inline:" in fmt.text:
            return [Plane("cells", "u8", head_dim // 2 + 4)]
        return [Plane("codes", "u8", head_dim // 2), Plane("scales", "f32", 1)]

    @staticmethod
    def decode(fmt, arrays):
        codes = np.ascontiguousarray(arrays[0])
        if ":inline:" in fmt.text:
            stored, codes = np.ascontiguousarray(codes[..., -4:]).view("<u4"), codes[..., :-4]
        else:
            stored = np.ascontiguousarray(arrays[1], "<f4").view("<u4")
        zero_points = (stored & np.uint32(15)).astype(np.float32)
        scales = (stored & np.uint32(0xFFFFFFF0)).view(np.float32)
        nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1).astype(np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            return to_float32(from_float32((nibbles - zero_points) * scales, fmt.type), fmt.type)

    level = decode

    @staticmethod
    def encode(fmt, values):
        """Finite x."""
        x = to_float32(from_float32(values, fmt.type), fmt.type)
        low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
        scales = np.maximum((high - low) * (np.float32(1) / np.float32(15)), np.float32(1e-6))
        inverse = np.float32(1) / scales
        zero_points = _nibbles(-low * inverse)
        positions = x.astype(np.float64) * inverse + zero_points  # one rounding, as a fused multiply-add
        nibbles = _nibbles(positions.astype(np.float32)).astype(np.uint8)
        codes = nibbles[..., ::2] | nibbles[..., 1::2] << 4
        stored = (scales.view(np.uint32) & np.uint32(0xFFFFFFF0)) | zero_points.astype(np.uint32)
        if ":inline:" in fmt.text:
            return (np.concatenate([codes, np.ascontiguousarray(stored, "<u4").view(np.uint8)], -1),)
        return codes, stored.view(np.float32)
