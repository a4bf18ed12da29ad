"""ggml's q4_0: a scale d and 32 nibbles, channels 0 to 15 low and 16 to 31 high, whose values are (nibble - 8) * d."""
import numpy as np

from . import ggml


class Q4_0(ggml.Blocks):
    name, bits, block_bytes = "q4_0", 4, 18

    @staticmethod
    def codes(blocks):
        nibbles = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1)
        return nibbles.astype(np.float32) - 8

    @staticmethod
    def encode_blocks(x):
        """Finite x."""
        first = np.abs(x).argmax(-1)[..., None]
        step = np.take_along_axis(x, first, -1)[..., 0] / np.float32(-8)
        nibbles = np.minimum(np.trunc(x * ggml.reciprocal(step)[..., None] + np.float32(8.5)), 15).astype(np.uint8)
        return np.concatenate([ggml.scale_bytes(step), nibbles[..., :16] | nibbles[..., 16:] << 4], -1)
