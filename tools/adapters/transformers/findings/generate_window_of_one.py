"""A model whose window is one token generates with its cache and without: every token should see itself alone."""
import torch
from transformers import MistralConfig, MistralForCausalLM

from _random_model import SIZES, filled

model = filled(MistralForCausalLM(MistralConfig(sliding_window=1, **SIZES)), seed=0)
prompt = torch.randint(0, 8, (1, 6))
for cached in (False, True):
    made = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0, use_cache=cached)
    print("with a cache   " if cached else "without a cache", made[0, 6:].tolist())
