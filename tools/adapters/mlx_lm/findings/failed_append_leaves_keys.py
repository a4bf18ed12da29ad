"""An append whose values are too wide raises in a ring that has to grow; the cache should be as before."""
import mlx.core as mx
from mlx_lm.models.cache import BatchRotatingKVCache, RotatingKVCache

mx.set_default_device(mx.cpu)

for cache in (RotatingKVCache(8), BatchRotatingKVCache(8, left_padding=[0])):
    cache.update_and_fetch(mx.ones((1, 2, 2, 4)), mx.ones((1, 2, 2, 4)))
    try:
        cache.update_and_fetch(mx.ones((1, 2, 1, 4)), mx.ones((1, 2, 1, 5)))
    except ValueError as error:
        print(type(cache).__name__, error)
    keys, values = cache.update_and_fetch(mx.ones((1, 2, 1, 4)), mx.ones((1, 2, 1, 4)))
    print("columns of keys:", keys.shape[2], "of values:", values.shape[2])
