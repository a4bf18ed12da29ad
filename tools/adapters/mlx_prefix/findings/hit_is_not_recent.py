"""mlx-lm's LRUPromptCache: a prompt that every request begins with, none of which is stored, and prompts that nobody asks for again."""
import mlx.core as mx
from mlx_lm.models.cache import KVCache, LRUPromptCache


def caches(tokens):
    cache = KVCache()
    rows = mx.zeros((1, 1, len(tokens), 8))
    cache.update_and_fetch(rows, rows)
    return [cache]


store = LRUPromptCache(max_size=10)  # as the server makes it
system = list(range(100))
store.insert_cache("model", system, caches(system), cache_type="user")
for request in range(11):
    found, rest = store.fetch_nearest_cache("model", system + [1000 + request])
    if request in (9, 10):
        print(f"request {request}: {len(system) + 1 - len(rest)} of {len(system) + 1} tokens are found")
    other = [2000 + request] * 5
    store.insert_cache("model", other, caches(other), cache_type="user")
