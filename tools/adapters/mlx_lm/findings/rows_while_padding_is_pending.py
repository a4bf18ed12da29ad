"""Rows of 1 and 3 tokens, padded on the right; before finalize the first is taken out, then kept alone."""
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[0, 0])
batch.prepare(lengths=[1, 3], right_padding=[2, 0])
columns = mx.concatenate([tokens(1, -1, -1), tokens(2, 3, 4)])
batch.update_and_fetch(columns, columns)
row = batch.extract(0)
print("extract(0) holds", row.keys.flatten().tolist(), "as", row.offset, "tokens")
batch.filter([0])
batch.finalize()
print("filter([0]), then finalize: rows", batch.keys.shape[0])
