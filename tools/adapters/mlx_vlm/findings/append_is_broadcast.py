"""mlx-vlm: columns of one row, or of one head, are written to all."""
import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.turboquant import BatchTurboQuantKVCache

cache = BatchTurboQuantKVCache([0, 0], bits=4)
cache.update_and_fetch(mx.ones((2, 2, 3, 32)), mx.ones((2, 2, 3, 32)))
for shape in ((1, 2, 1, 32), (2, 1, 1, 32)):
    keys, _ = cache.update_and_fetch(mx.ones(shape), mx.ones(shape))
    print(f"an append of {shape} to a cache of (2, 2, n, 32) leaves {keys.norms.shape[2]} columns")
