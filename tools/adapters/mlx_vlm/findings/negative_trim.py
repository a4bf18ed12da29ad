"""mlx-vlm: a negative count makes a cache longer."""
import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.turboquant import TurboQuantKVCache

cache = TurboQuantKVCache(4)
cache.update_and_fetch(mx.ones((1, 1, 3, 32)), mx.ones((1, 1, 3, 32)))
print("3 tokens; trim(-2) says", cache.trim(-2), "and leaves", cache.offset, "with room for", cache.keys.norms.shape[2])
