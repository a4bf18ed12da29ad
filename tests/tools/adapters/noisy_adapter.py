"""An adapter that does what libraries do: prints at import and in calls, from C too, raises, changes what it was given."""
import os
import time

import numpy as np

from kvcheck_adapter import Adapter, Unsupported

print("noise at import")
os.write(1, b"noise below Python\n")


class Noisy(Adapter):
    name, version = "noisy", "1"

    def new(self, layout, k, v, rows, padding):
        print("noise in a call")
        if layout.kind == "ring":
            raise ValueError("no rings\nsecond line")
        if layout.kind == "chunk":
            raise NotImplementedError("chunks to come")
        if layout.window == 99:
            return misspelt  # noqa: F821
        return [np.zeros((rows, 2, 0, 8), np.float32)] * 2

    def append(self, cache, k, v):
        k[:] = 0
        cache[0] = np.concatenate([cache[0], k], axis=2)
        cache[1] = np.concatenate([cache[1], v], axis=2)
        return cache[0], cache[1], None

    def trim(self, cache, count):
        for _ in range(12):
            time.sleep(0.1)
            self.alive()
        return 0

    def finalize(self, cache):
        os._exit(7)

    def save(self, cache, path):
        with open(path, "wb") as file:
            file.write(os.fsencode(path))
        raise Unsupported(path)
