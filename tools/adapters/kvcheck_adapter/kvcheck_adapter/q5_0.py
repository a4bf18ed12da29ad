"""ggml's q5_0: a scale d and 32 codes of 5 bits, the fifth bits apart, whose values are (code - 16) * d."""
import numpy as np

from . import ggml


class Q5_0(ggml.Blocks):
    name, bits, block_bytes = "q5_0", 5, 22

    @staticmethod
    def codes(blocks):
        return ggml.unpack_five_bits(blocks[..., 2:]).astype(np.float32) - 16

    @staticmethod
    def encode_blocks(x):
        """Finite x."""
        step, codes = ggml.encode_signed(x, 16)
        return np.concatenate([ggml.scale_bytes(step), ggml.pack_five_bits(codes)], -1)
