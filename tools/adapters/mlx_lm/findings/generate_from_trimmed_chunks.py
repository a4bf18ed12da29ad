"""Llama 4 with chunks of 8 tokens. A second prompt shares 10 tokens with a first one, whose cache LRUPromptCache, which
mlx_lm.server uses, hands out trimmed; it should give what it gives without."""
import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models import llama4
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache

from _random_model import SIZES, filled, prompt

mx.set_default_device(mx.cpu)
text = {**SIZES, "attention_bias": False, "attention_chunk_size": 8, "head_dim": 16, "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": 32, "max_position_embeddings": 1000, "num_experts_per_tok": 1, "num_hidden_layers": 4,
        "num_local_experts": 2, "rope_scaling": None, "rope_theta": 10000.0, "use_qk_norm": False}
model = filled(llama4.Model(llama4.ModelArgs(text_config=text, model_type="llama4")), seed=0)
first = prompt(14)
second = first[:10] + prompt(4)
cache, prompts = make_prompt_cache(model), LRUPromptCache()
made = [t for t, _ in generate_step(mx.array(first), model, max_tokens=8, prompt_cache=cache)]
prompts.insert_cache("model", first + made, cache)
cache, rest = prompts.fetch_nearest_cache("model", second)
print("tokens left to prefill", len(rest), "offsets of the layers", [c.offset for c in cache])
print("from the cache", [t for t, _ in generate_step(mx.array(rest), model, max_tokens=8, prompt_cache=cache)])
print("without it    ", [t for t, _ in generate_step(mx.array(second), model, max_tokens=8)])
