"""ggml's q8_0: a scale d and 32 signed bytes, whose values are code * d."""
import numpy as np

from . import ggml


class Q8_0(ggml.Blocks):
    name, bits, block_bytes = "q8_0", 8, 34

    @staticmethod
    def codes(blocks):
        return np.ascontiguousarray(blocks[..., 2:]).view(np.int8).astype(np.float32)

    @staticmethod
    def encode_blocks(x, x86=False):
        """As ggml's C reference, or as its vector code of x86, which writes llama.cpp's caches. Finite x."""
        largest = np.abs(x).max(-1)
        step = largest / np.float32(127)
        if x86:
            with np.errstate(divide="ignore", over="ignore"):
                inverse = np.where(largest == 0, np.float32(0), np.float32(127) / largest)
            codes = np.rint(x * inverse[..., None])
        else:
            steps = x * ggml.reciprocal(step)[..., None]
            whole = np.trunc(steps)  # roundf: the nearest integer, ties away from zero
            codes = whole + np.where(np.abs(steps - whole) >= 0.5, np.sign(steps), np.float32(0))
        return np.concatenate([ggml.scale_bytes(step), codes.astype(np.int8).view(np.uint8)], -1)
