"""Quantized attention is computed twice with the same queries."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import QuantizedKVCache

mx.set_default_device(mx.cpu)

cache = QuantizedKVCache(group_size=32, bits=8)
keys, values = cache.update_and_fetch(mx.ones((1, 1, 2, 32)), mx.ones((1, 1, 2, 32)))
queries = mx.ones((1, 1, 1, 32))
for _ in range(2):
    print("first channel of the queries:", queries[0, 0, 0, 0].item())
    base.scaled_dot_product_attention(queries, keys, values, cache=cache, scale=0.5, mask=None)
print("first channel of the queries:", queries[0, 0, 0, 0].item())
