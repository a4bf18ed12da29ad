"""Quantized attention with grouped heads, where values have other channels than keys."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import QuantizedKVCache

mx.set_default_device(mx.cpu)

cache = QuantizedKVCache(group_size=32, bits=8)
keys, values = cache.update_and_fetch(mx.ones((1, 1, 2, 64)), mx.ones((1, 1, 2, 32)))
for heads in (1, 2):
    try:
        out = base.scaled_dot_product_attention(mx.ones((1, heads, 1, 64)), keys, values, cache=cache, scale=0.5, mask=None)
        print(heads, "query heads: output of shape", out.shape)
    except ValueError as error:
        print(heads, "query heads:", error)
