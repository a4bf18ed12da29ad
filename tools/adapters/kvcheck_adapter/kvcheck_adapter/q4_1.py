"""ggml's q4_1: a scale d, a minimum m and 32 codes of 4 bits, channels 0 to 15 low and 16 to 31 high, whose values are code * d + m."""
import numpy as np

from . import ggml


class Q4_1(ggml.Blocks):
    name, bits, block_bytes, has_minimum = "q4_1", 4, 20, True

    @staticmethod
    def codes(blocks):
        return ggml.unpack_nibbles(blocks[..., 4:]).astype(np.float32)

    @staticmethod
    def encode_blocks(x):
        """Finite x."""
        step, least, codes = ggml.encode_from_minimum(x, 15)
        return np.concatenate([ggml.scale_bytes(step), ggml.scale_bytes(least), ggml.pack_nibbles(codes)], -1)
