"""batch_select_indices takes a negative row for one counted from the end; reorder_cache refuses it."""
import torch
from transformers import DynamicCache

cache = DynamicCache()
keys = torch.arange(2.0).reshape(2, 1, 1, 1)
cache.update(keys, keys, 0)
try:
    cache.reorder_cache(torch.tensor([-1, 0]))
except (IndexError, RuntimeError) as error:
    print("reorder_cache refuses:", error)
cache.batch_select_indices(torch.tensor([-1]))
print("batch_select_indices holds the row of", cache.layers[0].keys.flatten().tolist())
