"""transformers' generate_batch with a persistent manager: a prompt before and after the weights have changed."""
import logging
import warnings

logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
torch.set_num_threads(1)
config = LlamaConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                     vocab_size=64, initializer_range=0.5, attn_implementation="sdpa", bos_token_id=None, eos_token_id=None)
model, trained = LlamaForCausalLM(config).eval(), LlamaForCausalLM(config).eval()
prompt = list(range(1, 18))


def generate(persistent):
    options = GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(page_size=4, num_blocks=32, max_batch_tokens=64, max_memory_percent=0.5)
    made = model.generate_batch([prompt], options, continuous_batching_config=batching, persistent_manager=persistent,
                                warmup=False)
    return next(iter(made.values())).generated_tokens


print("old weights              ", generate(True))
model.load_state_dict(trained.state_dict())  # a step of training
print("new weights, kept manager", generate(True))
model.destroy_cached_continuous_batching_manager()
print("new weights, new manager ", generate(False))
