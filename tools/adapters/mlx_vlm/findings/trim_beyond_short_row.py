"""mlx-vlm: trim takes more of a padded row than the row has, and what is appended then is padding."""
import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.turboquant import BatchTurboQuantKVCache

cache = BatchTurboQuantKVCache([3, 0], bits=4)
columns = mx.ones((2, 1, 5, 32))
cache.update_and_fetch(columns, columns)
print("tokens of the rows:", cache.offset.tolist())
print("trim(4) says", cache.trim(4), "and leaves", cache.offset.tolist())
mask = cache.make_mask(1)
cache.update_and_fetch(columns[:, :, :1], columns[:, :, :1])
print("the next query of the first row sees", [i for i, seen in enumerate(mask[0, 0, 0].tolist()) if seen], "of columns 0 and 1")
