"""A quantized cache of each number of bits takes one token with 128 channels."""
import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache

mx.set_default_device(mx.cpu)

for bits in (2, 3, 4, 5, 6, 8):
    cache = QuantizedKVCache(group_size=64, bits=bits)
    try:
        cache.update_and_fetch(mx.ones((1, 1, 1, 128)), mx.ones((1, 1, 1, 128)))
        print(bits, "bits: stored")
    except ValueError as error:
        print(bits, "bits:", error)
