"""All tokens are cropped, then a row is chosen: the other rows stay, and the next update fails."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1))
cache.update(torch.ones(2, 1, 3, 4), torch.ones(2, 1, 3, 4), 0)
cache.crop(-3)
cache.batch_select_indices(torch.tensor([0]))
print("keys", list(cache.layers[0].keys.shape))
try:
    cache.update(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4), 0)
except RuntimeError as error:
    print("RuntimeError:", error)
