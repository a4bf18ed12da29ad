"""mlx-vlm: a window of no tokens, and of less."""
import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.turboquant import TurboQuantKVCache

cache = TurboQuantKVCache(4)
cache.update_and_fetch(mx.ones((1, 1, 3, 32)), mx.ones((1, 1, 3, 32)))
for window in (1, 0, -1):
    mask = cache.make_mask(1, return_array=False, window_size=window)
    print(f"window_size={window}: the query sees {int(mask.sum().item())} of 4 tokens")
