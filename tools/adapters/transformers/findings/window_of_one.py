"""A window of one token: the layer keeps everything, and the mask has fewer columns than the keys."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1, sliding_window=1))
for token in range(3):
    columns, _ = cache.get_mask_sizes(1, 0)
    keys, _ = cache.update(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4), 0)
    print("mask of", columns, "columns, keys of", keys.shape[2])
