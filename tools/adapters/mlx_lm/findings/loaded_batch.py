"""A batch that was saved and loaded is finalized, which after no prepare should do nothing; then after one."""
import tempfile

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, load_prompt_cache, save_prompt_cache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[1, 0])
batch.update_and_fetch(tokens(0, 1, 2, rows=2), tokens(0, 1, 2, rows=2))
with tempfile.TemporaryDirectory() as folder:
    save_prompt_cache(folder + "/cache.safetensors", [batch])
    (loaded,) = load_prompt_cache(folder + "/cache.safetensors")
    mx.eval(loaded.state[:2])
try:
    loaded.finalize()
except AttributeError as error:
    print(error)
loaded.prepare(lengths=[1, 2], right_padding=[1, 0])
loaded.update_and_fetch(tokens(3, 4, rows=2), tokens(3, 4, rows=2))
loaded.finalize()
print("after prepare, tokens:", loaded.offset.tolist())
