"""ggml's q4_0: a scale d and 32 codes of 4 bits, channels 0 to 15 low and 16 to 31 high, whose values are (code - 8) * d."""
import numpy as np

from . import ggml


class Q4_0(ggml.Blocks):
    name, bits, block_bytes = "q4_0", 4, 18

    @staticmethod
    def codes(blocks):
        return ggml.unpack_nibbles(blocks[..., 2:]).astype(np.float32) - 8

    @staticmethod
    def encode_blocks(x):
        """Finite x."""
        step, codes = ggml.encode_signed(x, 8)
        return np.concatenate([ggml.scale_bytes(step), ggml.pack_nibbles(codes)], -1)
