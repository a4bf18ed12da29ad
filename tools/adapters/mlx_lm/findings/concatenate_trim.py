"""Three tokens, two of them trimmed, then another one; and an empty cache that is saved and loaded."""
import tempfile

import mlx.core as mx
from mlx_lm.models.cache import ConcatenateKVCache, load_prompt_cache, save_prompt_cache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


cache = ConcatenateKVCache()
cache.update_and_fetch(tokens(1, 2, 3), tokens(1, 2, 3))
print("tokens trimmed:", cache.trim(2), "offset:", cache.offset)
keys, _ = cache.update_and_fetch(tokens(4), tokens(4))
print("columns:", keys.flatten().tolist(), "offset:", cache.offset)
with tempfile.TemporaryDirectory() as folder:
    save_prompt_cache(folder + "/cache.safetensors", [ConcatenateKVCache()])
    try:
        load_prompt_cache(folder + "/cache.safetensors")
    except AttributeError as error:
        print(error)
