"""Two rows on rings of 4, one with 2 columns of left padding; a step, then a chunk: row 0 should see token 1 again."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import BatchRotatingKVCache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchRotatingKVCache(4, left_padding=[2, 0])
batch.update_and_fetch(tokens(-1, -1, 1, 2, rows=2), tokens(-1, -1, 1, 2, rows=2))
batch.update_and_fetch(tokens(3, rows=2), tokens(3, rows=2))
mask = base.create_attention_mask(mx.zeros((2, 2, 1)), batch)
keys, _ = batch.update_and_fetch(tokens(4, 5, rows=2), tokens(4, 5, rows=2))
for row in (0, 1):
    print("row", row, "token 4 sees", [int(k) for k, s in zip(keys[row, 0, :, 0].tolist(), mask[row, 0, 0].tolist()) if s])
