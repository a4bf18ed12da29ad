"""hadamard:SIZE:FORMAT: rows rotated block by block before FORMAT stores them (formats.md, section F)."""
import numpy as np

from .storage import from_float32, to_float32
from .turboquant import hadamard


def _rotate(values, size):
    """float32 in, float32 out."""
    blocks = values.reshape(*values.shape[:-1], -1, size)
    with np.errstate(over="ignore", invalid="ignore"):
        return (hadamard(blocks) * np.float32(1 / np.sqrt(size))).reshape(values.shape)


def _parts(text):
    from .formats import parse_format  # which has this family

    _, size, stored = text.split(":", 2)
    return int(size), parse_format(stored)


class Rotated:
    @staticmethod
    def parse(text):
        if not text.startswith("hadamard:") or text.count(":") < 2:
            return None
        size, stored = _parts(text)
        return stored._replace(text=text, group=int(np.lcm(size, stored.group)), family=Rotated)

    @staticmethod
    def planes(fmt, head_dim):
        return _parts(fmt.text)[1].planes(head_dim)

    @staticmethod
    def decode(fmt, arrays):
        size, stored = _parts(fmt.text)
        return _rotate(stored.decode(arrays), size)

    level = decode

    @staticmethod
    def encode(fmt, values):
        size, stored = _parts(fmt.text)
        x = to_float32(from_float32(values, stored.type), stored.type)
        return stored.encode(_rotate(x, size))
