"""A row of rings is taken from its batch before all of its left padding was fed; then it gets 2 tokens."""
import mlx.core as mx
from mlx_lm.models.cache import BatchRotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchRotatingKVCache(4, left_padding=[2])
batch.update_and_fetch(tokens(-1), tokens(-1))
single = batch.extract(0)
print("offset of the row without tokens:", single.offset)
single.update_and_fetch(tokens(0, 1), tokens(0, 1))
print("offset after 2 tokens:", single.offset)
