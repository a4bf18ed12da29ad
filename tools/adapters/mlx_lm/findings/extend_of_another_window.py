"""A batch of rings of 4 is extended by one of rings of 8; merge refuses the same."""
import mlx.core as mx
from mlx_lm.models.cache import BatchRotatingKVCache, RotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch, other = BatchRotatingKVCache(4, [0]), BatchRotatingKVCache(8, [0])
batch.update_and_fetch(tokens(1, 2), tokens(1, 2))
other.update_and_fetch(tokens(*range(10, 16)), tokens(*range(10, 16)))
batch.extend(other)
keys, _ = batch.update_and_fetch(tokens(3, 16, rows=2), tokens(3, 16, rows=2))
print("window", batch.max_size, "holds of the row with a window of 8", keys[1].flatten().tolist())
try:
    RotatingKVCache.merge([RotatingKVCache(4), RotatingKVCache(8)])
except ValueError as error:
    print(error)
