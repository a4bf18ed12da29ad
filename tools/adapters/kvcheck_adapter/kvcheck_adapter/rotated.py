"""hadamard:SIZE:FORMAT: rows rotated block by block before FORMAT stores them (formats.md, section F)."""
import numpy as np

from .storage import from_float32, to_float32
from .turboquant import hadamard


def _rotate(values, size):
    """float32 in, float32 out."""
    blocks = values.reshape(*values.shape[:-1], -1, size)
    with np.errstate(over="ignore", invalid="ignore"):
        return (hadamard(blocks) * np.float32(1 / np.sqrt(size))).reshape(values.shape)


class Rotated:
    """The family, given the parser of all formats, of which it is one."""

    def __init__(self, parse_format):
        self._parse_format = parse_format

    def _parts(self, text):
        _, size, stored = text.split(":", 2)
        return int(size), self._parse_format(stored)

    def parse(self, text):
        if not text.startswith("hadamard:") or text.count(":") < 2:
            return None
        size, stored = self._parts(text)
        return stored._replace(text=text, group=int(np.lcm(size, stored.group)), family=self)

    def planes(self, fmt, head_dim):
        return self._parts(fmt.text)[1].planes(head_dim)

    def decode(self, fmt, arrays):
        size, stored = self._parts(fmt.text)
        return _rotate(stored.decode(arrays), size)

    level = decode

    def encode(self, fmt, values):
        size, stored = self._parts(fmt.text)
        x = to_float32(from_float32(values, stored.type), stored.type)
        return stored.encode(_rotate(x, size))
