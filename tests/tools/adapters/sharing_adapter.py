"""An adapter whose copy is no copy: both share their storage."""
import numpy as np

from kvcheck_adapter import Adapter


class Sharing(Adapter):
    name, version = "sharing", "1"

    def new(self, layout, k, v, rows, padding):
        return []

    def append(self, cache, k, v):
        cache.append((k, v))
        return *(np.concatenate(parts, axis=2) for parts in zip(*cache)), "causal"

    def trim(self, cache, count):
        k, v = (np.concatenate(parts, axis=2) for parts in zip(*cache))
        cache[:] = [(k[:, :, :-count], v[:, :, :-count])]
        return count

    def copy(self, cache):
        return cache

    def probe_copy(self, cache):
        return list(cache)
