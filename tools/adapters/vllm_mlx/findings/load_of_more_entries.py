"""vllm-mlx: a start with a lower limit of entries loads all that was saved."""
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


def store(entries):
    return MemoryAwarePrefixCache(object(), MemoryCacheConfig(max_memory_mb=1, max_entries=entries, min_prefix_tokens=1))


with tempfile.TemporaryDirectory() as folder:
    first = store(8)
    for number in range(4):
        first.store([number, number, number], computed(3))
    first.save_to_disk(folder)
    second = store(1)
    second.load_from_disk(folder)
    print(f"{len(second)} entries of at most 1")
