"""mlx-lm: what is fetched from a longer entry is cut by its offset alone, and counts with all of it when it is stored."""
import mlx.core as mx
from mlx_lm.models.cache import KVCache, LRUPromptCache

TOKENS = 1024


def computed(tokens):
    cache = KVCache()
    cache.update_and_fetch(mx.zeros((1, 1, tokens, 64)), mx.zeros((1, 1, tokens, 64)))
    return [cache]


store = LRUPromptCache()
first = list(range(TOKENS))
store.insert_cache("model", first, computed(TOKENS))
one = store.nbytes
second = first[:8] + [-1]  # another prompt, of which 8 tokens are the same
caches, rest = store.fetch_nearest_cache("model", second)
caches[0].update_and_fetch(mx.zeros((1, 1, 1, 64)), mx.zeros((1, 1, 1, 64)))
store.insert_cache("model", second, caches)
print(f"{TOKENS} tokens take {one} bytes, {len(second)} tokens {store.nbytes - one}")
store = LRUPromptCache(max_bytes=3 * one)
for number in range(4):  # of each prompt 8 tokens are the first prompt's
    if number == 0:
        store.insert_cache("model", first, computed(TOKENS))
    prompt = first[:8] + [-1 - number]
    caches, rest = store.fetch_nearest_cache("model", prompt)
    caches[0].update_and_fetch(mx.zeros((1, 1, 1, 64)), mx.zeros((1, 1, 1, 64)))
    store.insert_cache("model", prompt, caches)
caches, rest = store.fetch_nearest_cache("model", first)
print(f"with a budget of {3 * TOKENS} tokens and {TOKENS + 4 * 9} stored, {len(first) - len(rest)} of {TOKENS} are found")
