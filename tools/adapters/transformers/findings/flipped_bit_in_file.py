"""One bit of a saved cache is another: it is loaded, with other numbers, and without a word."""
import io

import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

cache = DynamicCache(config=LlamaConfig(num_hidden_layers=1))
cache.update(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4), 0)
file = io.BytesIO()
torch.save(cache, file)
data = bytearray(file.getvalue())
at = data.find(torch.ones(8).numpy().tobytes())
data[at + 2] ^= 64
again = torch.load(io.BytesIO(bytes(data)), weights_only=False)
print(again.layers[0].keys.flatten().tolist())
