"""nbytes of caches to which nothing was appended."""
import mlx.core as mx
from mlx_lm.models.cache import KVCache, LRUPromptCache

mx.set_default_device(mx.cpu)
print("KVCache", KVCache().nbytes)
try:
    LRUPromptCache().insert_cache("model", [1], [KVCache().to_quantized()])
except AttributeError as error:
    print("QuantizedKVCache", error)
