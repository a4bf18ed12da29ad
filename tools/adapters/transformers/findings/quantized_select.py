"""batch_select_indices of a quantized cache chooses rows of the unquantized residue alone."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import QuantizedCache

cache = QuantizedCache("quanto", LlamaConfig(num_hidden_layers=1), q_group_size=16, residual_length=8)
cache.update(torch.ones(2, 1, 6, 16), torch.ones(2, 1, 6, 16), 0)
cache.update(torch.ones(2, 1, 1, 16), torch.ones(2, 1, 1, 16), 0)
cache.batch_select_indices(torch.tensor([1]))
try:
    cache.update(torch.ones(1, 1, 1, 16), torch.ones(1, 1, 1, 16), 0)
except RuntimeError as error:
    print("RuntimeError:", error)
