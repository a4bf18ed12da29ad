"""A cache quantized by quanto cannot be copied, as prefix caching does."""
import copy

import torch
from transformers import LlamaConfig
from transformers.cache_utils import QuantizedCache

cache = QuantizedCache("quanto", LlamaConfig(num_hidden_layers=1), q_group_size=16)
cache.update(torch.ones(1, 1, 2, 16), torch.ones(1, 1, 2, 16), 0)
try:
    copy.deepcopy(cache)
    print("copied")
except RuntimeError as error:
    print("RuntimeError:", str(error)[:96])
