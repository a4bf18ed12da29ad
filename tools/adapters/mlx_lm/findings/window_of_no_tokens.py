"""A window of 0 tokens: linear caches hide everything, rings take it for no window."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import KVCache, RotatingKVCache

mx.set_default_device(mx.cpu)
for cache in (KVCache(), RotatingKVCache(4)):
    mask = base.create_attention_mask(mx.zeros((1, 2, 1)), cache, window_size=0, return_array=True)
    print(type(cache).__name__, mask.tolist())
