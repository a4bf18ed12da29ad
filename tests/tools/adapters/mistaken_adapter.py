"""Adapters whose authors made a mistake in what a probe alone calls; the layout says which. `linear:w=9`: no mistake, the
library raises."""
import json

import numpy as np

from kvcheck_adapter import Adapter


class Mistaken(Adapter):
    name, version = "mistaken", "1"

    def new(self, layout, k, v, rows, padding):
        return [layout.window, np.zeros((rows, 2, 0, 8), np.float32)]

    def append(self, cache, k, v):
        if len(cache) == 3:
            return None
        cache[1] = np.concatenate([cache[1], k], axis=2)
        return cache[1], cache[1], "causal"

    def trim(self, cache, count):
        return 0

    def probe_copy(self, cache):
        window = cache[0]
        if window == 1:
            return misspelt(cache)  # noqa: F821
        if window == 2:
            import no_such_module  # noqa: F401
        if window == 3:
            return cache.coppy()
        if window == 4:
            return list(cache, cache)
        if window == 5:
            return np.zeros("no shape")  # a TypeError of numpy, of arguments written here
        if window == 6:
            return [*cache, "append forgets its answer"]
        if window == 8:
            raise ValueError("no copies")
        if window == 9:
            return json.loads(5)  # a TypeError raised in another file
        return list(cache)
