"""A batch of no rows gains a row, which is then taken out again."""
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache

mx.set_default_device(mx.cpu)

batch, other = BatchKVCache([]), BatchKVCache([0])
other.update_and_fetch(mx.ones((1, 1, 2, 4)), mx.ones((1, 1, 2, 4)))
batch.extend(other)
print("left padding:", batch.left_padding.dtype)
try:
    batch.extract(0)
except ValueError as error:
    print(error)
