"""DynamicCache made of the tensors of a sliding one forgets how many tokens it has seen."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1, sliding_window=4))
for _ in range(8):
    cache.update(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4), 0)
again = DynamicCache(ddp_cache_data=list(cache))
print("length", cache.get_seq_length(), "becomes", again.get_seq_length())
print("mask sizes", cache.get_mask_sizes(1, 0), "become", again.get_mask_sizes(1, 0))
