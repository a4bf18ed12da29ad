"""One bit of a saved prompt cache is flipped; the file is loaded all the same."""
import json
import tempfile

import mlx.core as mx
from mlx_lm.models.cache import KVCache, load_prompt_cache, save_prompt_cache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


cache = KVCache()
cache.update_and_fetch(tokens(1, 2, 3), tokens(1, 2, 3))
with tempfile.TemporaryDirectory() as folder:
    path = folder + "/cache.safetensors"
    save_prompt_cache(path, [cache])
    data = bytearray(open(path, "rb").read())
    start = 8 + int.from_bytes(data[:8], "little")  # of the arrays; "0.0" are the keys of layer 0
    keys = start + json.loads(data[8:start])["0.0"]["data_offsets"][0]
    data[keys + 7] ^= 0x80  # the sign of token 2, a float32
    open(path, "wb").write(data)
    (loaded,) = load_prompt_cache(path)
    print("saved", cache.keys[0, 0, :3, 0].tolist(), "loaded", loaded.keys[0, 0, :3, 0].tolist())
