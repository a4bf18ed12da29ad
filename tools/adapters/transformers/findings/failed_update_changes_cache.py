"""An update that raises has changed the cache: keys without values, a length without columns."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

for window in (None, 4):
    cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1, sliding_window=window))
    cache.update(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4), 0)
    try:
        cache.update(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 3), 0)  # values of another width
    except RuntimeError:
        layer = cache.layers[0]
        print(layer, "keys", layer.keys.shape[2], "values", layer.values.shape[2], "length", cache.get_seq_length())
