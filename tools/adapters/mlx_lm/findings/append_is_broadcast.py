"""One row is appended to a cache of two rows, one head to a cache of two heads, and one value with two keys."""
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, KVCache, RotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[0, 0])
batch.update_and_fetch(tokens(1, 2, rows=2), tokens(1, 2, rows=2))
keys, _ = batch.update_and_fetch(tokens(3), tokens(3))
print("rows of the cache:", keys[:, 0, :, 0].tolist())
cache, two = KVCache(), mx.ones((1, 2, 1, 1))
cache.update_and_fetch(two, two)
keys, _ = cache.update_and_fetch(tokens(3), tokens(3))
print("heads of the cache:", keys[0, :, :, 0].tolist())
for kind in (KVCache(), RotatingKVCache(8)):
    kind.update_and_fetch(tokens(1), tokens(1))
    keys, values = kind.update_and_fetch(tokens(2, 3), tokens(2))
    print(type(kind).__name__, "of two keys and one value:", keys[0, 0, :, 0].tolist(), values[0, 0, :, 0].tolist())
