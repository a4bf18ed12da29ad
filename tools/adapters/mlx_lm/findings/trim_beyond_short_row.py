"""A batch whose rows hold 1 and 3 tokens is trimmed by 2: row 0 has but one to lose."""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models.cache import BatchKVCache, trim_prompt_cache

mx.set_default_device(mx.cpu)


def tokens(*numbers, rows=1):
    """K or V whose only channel is the token's number."""
    return mx.array([[[[n] for n in numbers]]] * rows, mx.float32)


batch = BatchKVCache(left_padding=[2, 0])
batch.update_and_fetch(tokens(0, 1, 2, rows=2), tokens(0, 1, 2, rows=2))
print("tokens trimmed:", trim_prompt_cache([batch], 2), "offsets:", batch.offset.tolist())
mask = base.create_attention_mask(mx.zeros((2, 1, 1)), batch)
batch.update_and_fetch(tokens(3, rows=2), tokens(3, rows=2))
print("the next token of row 0 sees", sum(mask[0, 0, 0].tolist()), "columns, its own included")
