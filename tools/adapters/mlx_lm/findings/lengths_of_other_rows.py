"""A batch of two rows is told one length; another is finalized after one of three columns."""
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[0, 0])
batch.prepare(lengths=[1], right_padding=[2])
batch.update_and_fetch(tokens(1, 2, 3, rows=2), tokens(1, 2, 3, rows=2))
batch.finalize()
print("one length for two rows, offsets:", batch.offset.tolist())
batch = BatchKVCache(left_padding=[0, 0])
batch.prepare(lengths=[1, 3], right_padding=[2, 0])
batch.update_and_fetch(tokens(1, rows=2), tokens(1, rows=2))
batch.finalize()
print("finalized after one column, offsets:", batch.offset.tolist())
