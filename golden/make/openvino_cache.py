"""OpenVINO's paged cache of keys by channel, on a CPU: the keys of one head, by the module of the live adapter that drives the plugin
(tools/adapters/openvino/paged_cache.py). For make_channel.py and count_channel.py."""
import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools/adapters/openvino"))

from paged_cache import TOKENS, PagedCache


class KeyCache:
    """One layer, one key/value head; sequences with blocks of their own."""

    def __init__(self, bits, channels, sequences, blocks):
        """blocks: of a sequence."""
        self.cache = PagedCache(bits, channels, sequences, blocks)

    def append(self, tokens):
        """tokens: (sequences, n, channels), float32."""
        keys = tokens[:, None]
        self.cache.append(keys, np.zeros_like(keys), np.zeros_like(keys))

    def stored(self):
        """Of every block codes, one a byte, (blocks, TOKENS, channels); scales and zeros, (blocks, channels)."""
        return [part[:, 0] for part in self.cache.stored()]
