"""A ring of 4 that keeps its first token becomes a row of a batch: the kept token should stay."""
import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


cache = RotatingKVCache(max_size=4, keep=1)
cache.update_and_fetch(tokens(0, 1, 2), tokens(0, 1, 2))
batch = RotatingKVCache.merge([cache])
for token in (3, 4, 5):
    keys, _ = batch.update_and_fetch(tokens(token), tokens(token))
    print("with token", token, "the batch holds", sorted(map(int, keys[0, 0, :, 0].tolist())))
