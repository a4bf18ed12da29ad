"""crop of a quantized cache takes from the unquantized residue alone, and the length stays."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import QuantizedCache

for backend, options in (("quanto", {}), ("hqq", {"axis_key": 1, "axis_value": 1}), ("fp8", None)):
    more = {} if options is None else {"q_group_size": 16, "residual_length": 8, **options}
    cache = QuantizedCache(backend, LlamaConfig(num_hidden_layers=1), **more)
    column = torch.ones(1, 1, 1, 16)
    cache.update(column.repeat(1, 1, 6, 1), column.repeat(1, 1, 6, 1), 0)
    cache.update(column.repeat(1, 1, 2, 1), column.repeat(1, 1, 2, 1), 0)
    try:
        cache.crop(-4)
    except IndexError as error:
        print(backend, "IndexError:", error)
        continue
    keys, _ = cache.update(column, column, 0)
    print(backend, "8 columns, crop(-4), 1 more:", keys.shape[2], "columns, length", cache.get_seq_length())
