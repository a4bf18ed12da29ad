"""Rows whose left padding has not been fed yet are filtered; then their padding and tokens come."""
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[2, 1])
batch.filter([0])
print("place of the next write:", batch._idx)
try:
    keys, _ = batch.update_and_fetch(tokens(-1, -1, 0), tokens(-1, -1, 0))
    print("columns that come back:", keys.shape[2], "of 3")
except ValueError as error:
    print(error)
