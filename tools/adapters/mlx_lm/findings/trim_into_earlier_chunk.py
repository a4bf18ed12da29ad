"""Chunks of 4 tokens; token 5 is in the second chunk. 3 tokens are trimmed, so that 3 is next, whose chunk has 0 to 3."""
import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache, trim_prompt_cache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


cache = ChunkedKVCache(4)
for columns in ((0, 1, 2, 3), (4,), (5,)):
    cache.maybe_trim_front()  # as models/llama4.py does before each append
    cache.update_and_fetch(tokens(*columns), tokens(*columns))
print("tokens trimmed:", trim_prompt_cache([cache], 3))
cache.maybe_trim_front()
keys, _ = cache.update_and_fetch(tokens(3), tokens(3))
print("token 3 sees", [int(k) for k in keys[0, 0, :, 0].tolist()], "of its chunk 0, 1, 2, 3")
