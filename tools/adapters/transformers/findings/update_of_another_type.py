"""A token of another type is appended: the cache becomes of that type."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache, StaticCache

cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1))
cache.update(torch.ones(1, 1, 2, 4).half(), torch.ones(1, 1, 2, 4).half(), 0)
keys, _ = cache.update(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4), 0)
print("DynamicCache holds", keys.dtype)
cache = StaticCache(config=LlamaConfig(num_hidden_layers=1), max_cache_len=4)
cache.update(torch.ones(1, 1, 2, 4).half(), torch.ones(1, 1, 2, 4).half(), 0)
try:
    cache.update(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4), 0)
except RuntimeError as error:
    print("StaticCache:", error)
    print("length", int(cache.get_seq_length()))
