"""Plain formats: the elements themselves."""
from .planes import Format, Plane
from .storage import STORED, from_float32, to_float32


class Plain:
    """f64, f32, f16, bf16, f8e4m3fn, f8e5m2."""

    @staticmethod
    def parse(text):
        return Format(text, None, None, text, Plain) if text in STORED else None

    @staticmethod
    def planes(fmt, head_dim):
        return [Plane("codes", fmt.type, head_dim)]

    @staticmethod
    def decode(fmt, arrays):
        return to_float32(arrays[0], fmt.type)

    level = decode

    @staticmethod
    def encode(fmt, values):
        return (from_float32(values, fmt.type),)
