"""The cache of tools/adapters/tutorial.md: one sequence, in arrays that double when they are full."""
import numpy as np
from kvcheck_adapter import Adapter


class GrowingCache:
    """Of one sequence. Callers give columns of one shape, and counts of 0 or more; the views that `update` returns are to
    be read before the cache is used again."""

    def __init__(self):
        self.keys = self.values = None
        self.length = 0

    def update(self, k, v):
        if self.keys is None:
            self.keys, self.values = k.copy(), v.copy()
        while self.length + k.shape[2] > self.keys.shape[2]:
            self.keys = np.concatenate([self.keys, np.zeros_like(self.keys)], axis=2)
            self.values = np.concatenate([self.values, np.zeros_like(self.values)], axis=2)
        end = self.length + k.shape[2]
        self.keys[:, :, self.length:end], self.values[:, :, self.length:end] = k, v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Tutorial(Adapter):
    name, version = "tutorial", "1"
    spaces = [{"kind": "cache", "layouts": ["linear"], "formats": ["f32"], "x": ["f32"], "rows": "single",
               "padding": False, "operations": ["new", "append", "trim", "copy", "drop"]}]
    # What GrowingCache asks of its callers, in its docstring.
    relies_on = {"counts", "columns", "results"}

    def new(self, layout, k, v, rows, padding):
        return GrowingCache()

    def append(self, cache, k, v):
        keys, values = cache.update(k, v)
        return keys, values, "causal"

    def trim(self, cache, count):
        trimmed = min(count, cache.length)
        cache.length -= trimmed
        return trimmed
