"""ggml's q5_1: a scale d, a minimum m and 32 codes of 5 bits, the fifth bits apart, whose values are code * d + m."""
import numpy as np

from . import ggml


class Q5_1(ggml.Blocks):
    name, bits, block_bytes, has_minimum = "q5_1", 5, 24, True

    @staticmethod
    def codes(blocks):
        return ggml.unpack_five_bits(blocks[..., 4:]).astype(np.float32)

    @staticmethod
    def encode_blocks(x):
        """Finite x."""
        step, least, codes = ggml.encode_from_minimum(x, 31)
        return np.concatenate([ggml.scale_bytes(step), ggml.scale_bytes(least), ggml.pack_five_bits(codes)], -1)
