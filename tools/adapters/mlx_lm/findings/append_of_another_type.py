"""A token of another type is appended: it is converted, or the cache becomes of that type."""
import mlx.core as mx
from mlx_lm.models.cache import KVCache, RotatingKVCache

mx.set_default_device(mx.cpu)

for cache in (KVCache(), RotatingKVCache(4)):
    cache.update_and_fetch(mx.ones((1, 1, 2, 4), mx.float16), mx.ones((1, 1, 2, 4), mx.float16))
    keys, _ = cache.update_and_fetch(mx.full((1, 1, 2, 4), 70000.0), mx.full((1, 1, 2, 4), 70000.0))
    print(type(cache).__name__, "holds", keys.dtype, keys[0, 0, :, 0].tolist())
