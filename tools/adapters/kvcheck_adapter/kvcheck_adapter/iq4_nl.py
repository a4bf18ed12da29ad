"""ggml's iq4_nl: a scale d and 32 nibbles, channels 0 to 15 low and 16 to 31 high, whose values are TABLE[nibble] * d."""
import numpy as np

from . import ggml

TABLE = np.float32([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
SMALLEST = np.float32(1e-15)  # of a largest magnitude that has a scale


class Iq4Nl(ggml.Blocks):
    name, bits, block_bytes = "iq4_nl", 4, 18

    @staticmethod
    def codes(blocks):
        return TABLE[ggml.unpack_nibbles(blocks[..., 2:])]

    @staticmethod
    def encode_blocks(x):
        """Finite x, as llama.cpp writes its KV cache (not its files, whose scales come from a longer search)."""
        largest = ggml.largest_element(x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            steps = x * (np.float32(1) / (largest / TABLE[0]))[..., None]
            # The middles are exact; from them on the upper entry is taken.
            nibbles = np.searchsorted((TABLE[:-1] + TABLE[1:]) / 2, steps, side="right").astype(np.uint8)
            entries = TABLE[nibbles]
            part = x * x * entries
            above, below = np.zeros_like(largest), np.zeros_like(largest)
            for i in range(ggml.BLOCK):  # in the order of the channels
                above, below = above + part[..., i] * x[..., i], below + part[..., i] * entries[..., i]
            scale = np.where(below > 0, above / below, np.float32(0))
        has_scale = np.abs(largest) >= SMALLEST
        nibbles = np.where(has_scale[..., None], nibbles, np.uint8(0))
        return np.concatenate([ggml.scale_bytes(np.where(has_scale, scale, np.float32(0))), ggml.pack_nibbles(nibbles)], -1)
