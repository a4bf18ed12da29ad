"""Quantized attention with two query heads on one key/value head, under a mask that differs from head to head."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import QuantizedKVCache

mx.set_default_device(mx.cpu)

cache = QuantizedKVCache(group_size=32, bits=8)
keys, values = cache.update_and_fetch(mx.ones((1, 1, 2, 32)), mx.ones((1, 1, 2, 32)))
mask = mx.array([[[[True, False]], [[True, True]]]])
try:
    base.scaled_dot_product_attention(mx.ones((1, 2, 1, 32)), keys, values, cache=cache, scale=0.5, mask=mask)
except ValueError as error:
    print(error)
