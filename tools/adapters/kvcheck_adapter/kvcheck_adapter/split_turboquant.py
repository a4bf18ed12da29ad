"""TurboQuant with half a bit: the channels of a group that a mask names have one bit more than the others, and each half is
a turboquant group of its own (formats.md, section E)."""
import functools

import numpy as np

from .planes import Format, Plane
from .turboquant import CODEBOOKS, Turboquant

HIGH_SEED = 97


@functools.lru_cache(maxsize=64)
def halves(text):
    """((format, its channels of a group), ...): the lower bits, then the higher ones."""
    _, bits, group, *rest = text.split(":")
    low, d = int(bits[:-2]), int(group[1:])
    codebook = [part for part in rest[:-1] if part in CODEBOOKS]
    words = next(part[1:] for part in rest if part[0] == "h")
    seed = next((int(part[1:]) for part in rest[:-1] if part[0] == "s"), 0)
    mask = np.array([int(words[8 * i:8 * i + 8], 16) for i in range(d // 32)], "<u4")
    high = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)
    return tuple((Turboquant.parse(":".join(["turboquant", str(low + one), f"g{d // 2}", *codebook,
                                             f"s{seed + HIGH_SEED * one}", rest[-1]])), np.flatnonzero(high == bool(one)))
                 for one in (0, 1))


class SplitTurboquant:
    """turboquant:BITS.5:gGROUP[:CODEBOOK]:hHIGH[:sSEED]:ROW_TYPE."""

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name != "turboquant" or len(parts) < 4 or not parts[0].endswith(".5") or not parts[1].startswith("g"):
            return None
        group, masks = int(parts[1][1:]), [part for part in parts if part[0] == "h"]
        if len(masks) != 1 or len(masks[0]) != 1 + group // 4:
            return None
        return Format(text, float(parts[0]), group, parts[-1], SplitTurboquant)

    @staticmethod
    def planes(fmt, head_dim):
        low, high = ([*half.planes(head_dim // 2)] for half, _ in halves(fmt.text))
        return [Plane(a.name, a.kind, a.elements + b.elements) for a, b in zip(low, high)]

    @staticmethod
    def decode(fmt, arrays):
        words, norms = (np.asarray(array) for array in arrays)
        groups = norms.shape[-1] // 2
        values = np.empty((*norms.shape[:-1], groups, fmt.group), np.float32)
        at = 0
        for index, (half, channels) in enumerate(halves(fmt.text)):
            width = half.planes(groups * half.group)[0].elements
            part = half.decode([words[..., at:at + width], norms[..., index * groups:(index + 1) * groups]])
            values[..., channels] = part.reshape(*norms.shape[:-1], groups, half.group)
            at += width
        return values.reshape(*norms.shape[:-1], -1)

    level = decode

    @staticmethod
    def encode(fmt, values):
        x = np.asarray(values)
        x = x.reshape(*x.shape[:-1], -1, fmt.group)
        parts = [half.encode(x[..., channels].reshape(*x.shape[:-2], -1)) for half, channels in halves(fmt.text)]
        return tuple(np.concatenate(planes, -1) for planes in zip(*parts))
