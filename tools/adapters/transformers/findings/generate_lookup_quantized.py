"""generate() with prompt lookup, which rejects tokens, and with a quantized cache; each alone works."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from _random_model import SIZES, filled

model = filled(LlamaForCausalLM(LlamaConfig(**SIZES)), seed=0)
prompt = torch.randint(0, 8, (1, 6)).repeat(1, 3)
lookup = {"prompt_lookup_num_tokens": 3}
for backend in ("quanto", "hqq", "fp8"):
    sizes = {} if backend == "fp8" else {"nbits": 4, "q_group_size": 16, "axis_key": int(backend == "hqq"),
                                         "axis_value": int(backend == "hqq")}
    quantized = {"cache_implementation": "quantized", "cache_config": {"backend": backend, **sizes}}
    for name, options in (("alone", quantized), ("lookup", {**lookup, **quantized})):
        try:
            made = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0, **options)
            print(backend, name, made.shape[1] - prompt.shape[1], "tokens")
        except IndexError as error:
            print(backend, name, "IndexError:", error)
