"""A quantized cache of each number of bits takes one token, of heads as wide as models have them."""
import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache

mx.set_default_device(mx.cpu)

for bits in (2, 3, 4, 5, 6, 8):
    stored, raised, message = [], [], ""
    for channels in (32, 64, 96, 128, 160, 192, 256):
        cache = QuantizedKVCache(group_size=64 if channels % 64 == 0 else 32, bits=bits)
        try:
            cache.update_and_fetch(mx.ones((1, 1, 1, channels)), mx.ones((1, 1, 1, channels)))
            stored.append(channels)
        except ValueError as error:
            raised.append(channels)
            message = str(error)
    print(f"{bits} bits: stored {stored}" + (f", raised {raised}, the last time\n        {message}" if raised else ""))
