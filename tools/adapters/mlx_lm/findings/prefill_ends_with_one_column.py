"""A prefill padded on the right whose last chunk has one column, as PromptProcessingBatch.prompt feeds it."""
import mlx.core as mx
from mlx_lm.models.cache import BatchRotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchRotatingKVCache(4, left_padding=[0, 0])
batch.prepare(lengths=[2, 5], right_padding=[3, 0])
batch.update_and_fetch(tokens(0, 1, 2, 3, rows=2), tokens(0, 1, 2, 3, rows=2))
try:
    batch.update_and_fetch(tokens(4, rows=2), tokens(4, rows=2))
except RuntimeError as error:
    print(error)
