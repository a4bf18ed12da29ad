"""mlx-vlm: what a batch reads of a row that came by extend, beside what that row's own cache reads of it."""
import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.turboquant import BatchTurboQuantKVCache

mx.random.seed(0)
for bits in (3, 3.5):
    caches, own = [], []
    for row in range(2):
        loud = mx.where(mx.arange(64) // 32 == row, 4.0, 1.0)  # each row has channels of its own that are large
        keys = mx.random.normal((1, 1, 8, 64)) * loud
        cache = BatchTurboQuantKVCache([0], bits=4, key_bits=bits)
        cache.update_and_fetch(keys, keys)
        caches.append(cache)
        own.append(cache.dequantize()[0][0])
    caches[0].extend(caches[1])
    for row, keys in enumerate(caches[0].dequantize()[0]):
        error = mx.linalg.norm(keys - own[row]) / mx.linalg.norm(own[row])
        print(f"{bits} bits: row {row} is read {error.item():.2f} of its length off")
