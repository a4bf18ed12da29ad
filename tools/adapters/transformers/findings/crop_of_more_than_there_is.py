"""A cache of 6 tokens is cropped by 8: a full layer, then a sliding one that records the past; then a token comes."""
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

columns, token = torch.ones((1, 1, 6, 8)), torch.ones((1, 1, 1, 8))
for window, make_mask in ((None, create_causal_mask), (4, create_sliding_window_causal_mask)):
    config = LlamaConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1, sliding_window=window)
    config._attn_implementation = "eager"
    cache = DynamicCache(config=config)
    if window:
        cache.activate_past_recording()
    cache.update(columns, columns, 0)
    cache.crop(-8)
    print(type(cache.layers[0]).__name__, "length", cache.get_seq_length())
    try:
        make_mask(config, token[0], None, cache)
        cache.update(token, token, 0)
        print("with one more", cache.get_seq_length())
    except RuntimeError as error:
        print("RuntimeError:", error)
