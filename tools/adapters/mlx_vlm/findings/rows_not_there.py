"""mlx-vlm: rows that a batch does not have."""
import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.turboquant import BatchTurboQuantKVCache

cache = BatchTurboQuantKVCache([0, 0], bits=4)
cache.update_and_fetch(mx.ones((2, 1, 3, 32)), mx.ones((2, 1, 3, 32)))
print("extract(5) of 2 rows has", cache.extract(5).offset, "tokens")
cache.filter(mx.array([7], mx.int32))
print("filter([7]) leaves", cache.batch_size, "row")
