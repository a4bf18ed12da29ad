"""A row is taken from batches to which nothing was appended."""
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache

mx.set_default_device(mx.cpu)

for batch in (BatchKVCache([0, 0]), BatchRotatingKVCache(4, [0, 0])):
    try:
        batch.extract(0)
    except TypeError as error:
        print(type(batch).__name__, error)
