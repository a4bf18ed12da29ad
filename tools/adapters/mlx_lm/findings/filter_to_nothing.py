"""All rows of a batch end at once."""
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[0, 0])
batch.update_and_fetch(tokens(0, 1, rows=2), tokens(0, 1, rows=2))
try:
    batch.filter([])
except ValueError as error:
    print(error)
