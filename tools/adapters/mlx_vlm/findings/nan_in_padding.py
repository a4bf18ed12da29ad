"""mlx-vlm: what stands in columns of padding, in the attention of a padded row."""
import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.models.base import scaled_dot_product_attention
from mlx_vlm.turboquant import BatchTurboQuantKVCache

for what, value in (("zeros", 0.0), ("NaN", float("nan"))):
    cache = BatchTurboQuantKVCache([2, 0], bits=4)
    columns = mx.ones((2, 1, 4, 32))
    columns[0, :, :2] = value
    mask = cache.make_mask(4)
    keys, values = cache.update_and_fetch(columns, columns)
    out = scaled_dot_product_attention(mx.ones((2, 1, 4, 32)), keys, values, cache=cache, scale=1.0, mask=mask)
    print(f"padding of {what}: the first row's attention is finite:", bool(mx.isfinite(out[0, :, 2:]).all().item()))
