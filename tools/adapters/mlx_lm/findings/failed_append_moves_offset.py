"""An append with the wrong number of heads raises; the cache should be as before."""
import mlx.core as mx
from mlx_lm.models.cache import KVCache

mx.set_default_device(mx.cpu)

cache = KVCache()
cache.update_and_fetch(mx.ones((1, 2, 3, 4)), mx.ones((1, 2, 3, 4)))
try:
    cache.update_and_fetch(mx.ones((1, 3, 1, 4)), mx.ones((1, 3, 1, 4)))
except ValueError as error:
    print(error)
print("tokens:", cache.offset)
keys, _ = cache.update_and_fetch(mx.ones((1, 2, 1, 4)), mx.ones((1, 2, 1, 4)))
print("columns:", keys[0, 0, :, 0].tolist())
