"""One prompt of 20 tokens under max_kv_size=8, prefilled in chunks of several sizes: every token should see the first 4
and the newest 4, as generate_step documents, whatever the chunks are."""
import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models import qwen2
from mlx_lm.models.cache import KVCache

from _random_model import SIZES, filled, prompt

mx.set_default_device(mx.cpu)


class AsDefined(KVCache):
    """All tokens are held, and hidden by the definition."""

    def make_mask(self, N, **_):
        queries, keys = mx.arange(self.offset, self.offset + N)[:, None], mx.arange(self.offset + N)
        return (keys <= queries) & ((keys < 4) | (keys > queries - 4))


model = filled(qwen2.Model(qwen2.ModelArgs(num_hidden_layers=3, tie_word_embeddings=False, **SIZES)), seed=2)
tokens = mx.array(prompt(20))
print("as defined    ", [t for t, _ in generate_step(tokens, model, max_tokens=8, prompt_cache=[AsDefined() for _ in range(3)])])
for size in (1, 4, 2048):
    made = generate_step(tokens, model, max_tokens=8, max_kv_size=8, prefill_step_size=size)
    print(f"chunks of {size:4}", [t for t, _ in made])
