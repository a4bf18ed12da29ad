"""A batch without rows says that it has seen nothing, and attention cannot take it."""
import types

import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1))
cache.update(torch.ones(2, 1, 3, 4), torch.ones(2, 1, 3, 4), 0)
cache.batch_select_indices(torch.tensor([], dtype=torch.long))
print("length", cache.get_seq_length(), "mask sizes", cache.get_mask_sizes(1, 0))
q = torch.ones(0, 1, 1, 4)
keys, values = cache.update(q, q, 0)
print("keys of", keys.shape[2], "columns")
try:
    ALL_ATTENTION_FUNCTIONS["sdpa"](types.SimpleNamespace(is_causal=True), q, keys, values, None)
except RuntimeError as error:
    print("RuntimeError:", str(error)[:60])
