"""One token on a full ring of 5 that keeps 2, under a window of 3: kept tokens 0 and 1 should stay visible."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import RotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


cache = RotatingKVCache(max_size=5, keep=2)
cache.update_and_fetch(tokens(0, 1, 2, 3, 4), tokens(0, 1, 2, 3, 4))
mask = base.create_attention_mask(mx.zeros((1, 1, 1)), cache, window_size=3)
keys, _ = cache.update_and_fetch(tokens(5), tokens(5))
print("token 5 sees", sorted(int(k) for k, seen in zip(keys[0, 0, :, 0].tolist(), mask.tolist()) if seen))
