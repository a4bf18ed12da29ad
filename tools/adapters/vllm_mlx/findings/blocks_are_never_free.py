"""vllm-mlx's paged cache, with the calls of its scheduler: after max_blocks blocks nothing is stored any more."""
import logging

logging.disable(logging.CRITICAL)

import mlx.core as mx
from vllm_mlx.paged_cache import PagedCacheManager
from vllm_mlx.prefix_cache import BlockAwarePrefixCache

BLOCK = 4
manager = PagedCacheManager(block_size=BLOCK, max_blocks=9)  # one of them is the null block
cache = BlockAwarePrefixCache(object(), manager)
for number in range(6):  # requests one after the other, each of two blocks of its own, and as their scheduler ends them
    tokens = [100 * number + i for i in range(2 * BLOCK)]
    table, rest = cache.fetch_cache(f"request {number}", tokens)
    rows = mx.zeros((1, 1, len(tokens), 64))
    cache.store_cache(f"request {number}", tokens, [{"state": (rows, rows), "meta_state": (str(len(tokens)),)}])
    table, rest = cache.fetch_cache(f"again {number}", tokens)
    found = len(tokens) - len(rest)
    print(f"request {number}: {found} of {len(tokens)} tokens are found again, {manager.free_blocks} blocks free")
