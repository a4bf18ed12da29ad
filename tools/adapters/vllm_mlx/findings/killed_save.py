"""vllm-mlx's server, killed while it saves its prefix cache over the one of the run before."""
import logging
import os
import signal
import subprocess
import sys
import tempfile

logging.disable(logging.CRITICAL)

import mlx.core as mx
from mlx_lm.models import cache as caches
from vllm_mlx.memory_cache import MemoryAwarePrefixCache, MemoryCacheConfig

FIRST, SECOND = list(range(130)), list(range(1000, 1130))  # prompts of the first and of the second run


def store_of(tokens=None):
    store = MemoryAwarePrefixCache(object(), MemoryCacheConfig(max_memory_mb=1))
    if tokens:
        cache, rows = caches.KVCache(), mx.full((1, 1, len(tokens), 8), tokens[0] + 1.0)
        cache.update_and_fetch(rows, rows)
        store.store(tokens, [cache])
    return store


if len(sys.argv) > 1:  # the second run, and its end: after the first file
    write = caches.save_prompt_cache

    def write_and_die(*arguments, **options):
        write(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    caches.save_prompt_cache = write_and_die
    store_of(SECOND).save_to_disk(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    store_of(FIRST).save_to_disk(folder)
    subprocess.run([sys.executable, __file__, folder])
    third = store_of()
    loaded = third.load_from_disk(folder)
    shown, rest = third.fetch(FIRST)
    print(f"{loaded} entry is loaded; of the first run's prompt {len(FIRST) - len(rest)} tokens are found, K of the first is "
          f"{shown[0].keys[0, 0, 0, 0].item():g}: stored were 1 by the first run and {SECOND[0] + 1} by the second")
