"""A batch of two rows gives the row before its first, then is filtered to a third one."""
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[0, 0])
batch.update_and_fetch(tokens(1, 2, rows=2), tokens(1, 2, rows=2))
row = batch.extract(-1)
print("extract(-1): keys of shape", row.keys.shape, "and", row.offset, "tokens")
batch.filter([2])
print("filter([2]): rows", batch.offset.size)
