"""A negative number of tokens is trimmed."""
import mlx.core as mx
from mlx_lm.models.cache import KVCache, trim_prompt_cache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


cache = KVCache()
cache.update_and_fetch(tokens(1, 2, 3), tokens(1, 2, 3))
print("tokens trimmed:", trim_prompt_cache([cache], -2))
keys, _ = cache.update_and_fetch(tokens(4), tokens(4))
print("columns:", [int(k) for k in keys[0, 0, :, 0].tolist()])
