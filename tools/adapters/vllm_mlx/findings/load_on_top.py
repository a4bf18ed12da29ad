"""vllm-mlx: what is loaded from disk is put beside what is there already, under the same key."""
import logging
import tempfile

logging.disable(logging.CRITICAL)

import mlx.core as mx
from mlx_lm.models.cache import KVCache
from vllm_mlx.memory_cache import MemoryAwarePrefixCache, MemoryCacheConfig


def computed(tokens):
    cache = KVCache()
    cache.update_and_fetch(mx.zeros((1, 1, tokens, 64)), mx.zeros((1, 1, tokens, 64)))
    return [cache]


store = MemoryAwarePrefixCache(object(), MemoryCacheConfig(max_memory_mb=1, min_prefix_tokens=1))
store.store([1, 2, 3], computed(3))
with tempfile.TemporaryDirectory() as folder:
    store.save_to_disk(folder)
    before = store._current_memory
    store.load_from_disk(folder)
print(f"{len(store)} entry, counted {store._current_memory // before} times")
store.store([1, 2, 3, 4], computed(4))  # its prefix goes
try:
    print(store.fetch([1, 2]))
except KeyError as error:
    print(f"fetch raises KeyError: {error}")
