"""A column of left padding holds NaN in V; the mask hides it."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import BatchKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[1])
mask = base.create_attention_mask(mx.zeros((1, 3, 1)), batch)
keys, values = batch.update_and_fetch(tokens(float("nan"), 1, 2), tokens(float("nan"), 1, 2))
out = base.scaled_dot_product_attention(tokens(0, 1, 2), keys, values, cache=batch, scale=1.0, mask=mask)
print("mask of the last query:", mask[0, 0, 2].tolist())
print("its output:", out[0, 0, 2].tolist())
