"""A chunk on a full ring of 4 that keeps 2 tokens: each query should see tokens 0 and 1 and the newest two."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import RotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


cache = RotatingKVCache(max_size=4, keep=2)
cache.update_and_fetch(tokens(0, 1, 2, 3), tokens(0, 1, 2, 3))
mask = base.create_attention_mask(mx.zeros((1, 2, 1)), cache)
keys, _ = cache.update_and_fetch(tokens(4, 5), tokens(4, 5))
for query, row in zip((4, 5), mask.tolist()):
    print("token", query, "sees", [int(k) for k, seen in zip(keys[0, 0, :, 0].tolist(), row) if seen])
