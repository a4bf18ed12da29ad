"""A ring of 2 takes a chunk of 2 tokens, then one more; the chunk is the caller's."""
import mlx.core as mx
from mlx_lm.models.cache import BatchRotatingKVCache, RotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


for cache in (RotatingKVCache(2), BatchRotatingKVCache(2, [0])):
    keys, values = tokens(1, 2), tokens(1, 2)
    cache.update_and_fetch(keys, values)
    cache.update_and_fetch(tokens(3), tokens(3))
    print(type(cache).__name__, "leaves keys", keys.flatten().tolist(), "values", values.flatten().tolist())
