"""A sliding cache is cropped before anything was appended; a full one does nothing."""
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

for window in (None, 4):
    cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1, sliding_window=window))
    try:
        cache.crop(-1)
        print(cache.layers[0], "nothing happens")
    except AttributeError as error:
        print(cache.layers[0], "AttributeError:", error)
