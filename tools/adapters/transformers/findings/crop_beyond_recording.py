"""A sliding layer that records the past is cropped by more tokens than it recorded."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1, sliding_window=4))
cache.activate_past_recording()
for token in range(8):
    if token:
        cache.crop(0)  # what came so far is accepted
    column = torch.full((1, 1, 1, 2), float(token))
    cache.update(column, column, 0)
print("holds", cache.layers[0].keys[0, 0, :, 0].tolist())
cache.crop(-3)
keys, _ = cache.update(column, column, 0)
print("length", cache.get_seq_length(), "returns", keys[0, 0, :, 0].tolist(), "for a window of 4")
