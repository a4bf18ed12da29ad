"""Tokens that come after the first update are larger than any of it: fp8 cuts them off."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import QuantizedCache

cache = QuantizedCache("fp8", LlamaConfig(num_hidden_layers=1))
first = torch.tensor([0.5, 1.0]).reshape(1, 1, 1, 2)
cache.update(first, first, 0)
for factor in (1.0, 2.0, 10.0):
    keys, _ = cache.update(first * factor, first * factor, 0)
    print("times", factor, "gives", keys[0, 0, -1].tolist())
