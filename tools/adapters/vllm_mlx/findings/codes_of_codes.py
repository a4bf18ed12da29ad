"""vllm-mlx with a quantized cache: what is fetched is decoded, and encoded again where it is stored again."""
import logging

logging.disable(logging.CRITICAL)

import mlx.core as mx
from mlx_lm.models.cache import KVCache
from vllm_mlx.memory_cache import MemoryAwarePrefixCache, MemoryCacheConfig

mx.random.seed(1)
rows = mx.random.normal((1, 1, 64, 64)).astype(mx.float16)
cache = KVCache()
cache.update_and_fetch(rows, rows)
config = MemoryCacheConfig(max_memory_mb=1, min_prefix_tokens=1, kv_quantize=True, kv_bits=4, kv_group_size=32,
                           kv_min_quantize_tokens=1)
store = MemoryAwarePrefixCache(object(), config)
tokens = list(range(64))
first = None
for turn in range(4):  # of a conversation: fetched, one token more, stored
    store.store(tokens, [cache])
    cache = store.clone_for_replay(store.fetch(tokens)[0])[0]
    shown = cache.keys[..., :64, :]
    first = shown if first is None else first
    print(f"turn {turn}: {int((shown != first).sum())} of {shown.size} elements of the first 64 tokens are others than in turn 0")
    row = mx.random.normal((1, 1, 1, 64)).astype(mx.float16)
    cache.update_and_fetch(row, row)
    tokens = tokens + [64 + turn]
