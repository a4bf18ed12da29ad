"""mlx-lm's LRUPromptCache, with the calls of its server (mlx_lm/server.py, _serve_single): fetch_nearest_cache, the rest
of the prompt through the caches, insert_cache. It has no disk, and no notion of weights that change under one name."""
import importlib.metadata

from kvcheck_adapter import PrefixAdapter, Started
from prompts import Prompt, columns, mx

from mlx_lm.models.cache import LRUPromptCache

ANY_NUMBER = 1 << 30


class LruPromptCache(PrefixAdapter):
    name = "mlx-lm-prompts"
    version = f"{importlib.metadata.version('mlx-lm')} (mlx {importlib.metadata.version('mlx')})"
    # An exact hit is whole, a longer prompt is cut so that one token is left; prefixes of what is inserted go. The class's
    # name says which entry goes first.
    prefix_profile = "grain=token last=exact superseded=dropped evict=lru"
    spaces = [{"kind": "prefix", "identity": ["model", "adapter"], "quantizes": False, "windows": False, "disk": False,
               "tiers": False, "operations": ["open", "write", "read", "close", "fork", "trim_to", "evict", "clear",
                                              "observe"]}]
    relies_on = {"shapes", "counts"}

    def start(self, setup, folder, again):
        self.setup = setup
        self.budget = setup.capacity_tokens * setup.token_bytes
        self.store = LRUPromptCache(max_size=setup.max_entries or ANY_NUMBER, max_bytes=self.budget)
        return Started(1, setup.capacity_tokens, holds_requests=False)

    def key(self, who):
        return (who.model, who.adapter, None)  # as ModelProvider makes it: model, adapter, draft model

    def open(self, tokens, who, all):
        caches, rest = self.store.fetch_nearest_cache(self.key(who), tokens)
        hit = len(tokens) - len(rest)
        return Prompt(self.setup, who, tokens[:hit], caches), hit

    def close(self, request, keep):
        if keep and request.tokens:  # a server has no empty prompt
            self.store.insert_cache(self.key(request.who), request.tokens, request.caches)

    def fork(self, request):
        return request.copy()

    def trim_to(self, request, tokens):
        request.trim_to(tokens)

    def evict(self, tokens):
        self.store.trim_to(n_bytes=self.budget - tokens * self.setup.token_bytes)

    def clear(self):
        self.store.trim_to(n_sequences=0)

    def observe(self):
        return {"entries": len(self.store), "bytes": self.store.nbytes, "budget_bytes": self.budget}


STORE = LruPromptCache


def repair():
    """What is inserted has no more memory than its tokens; what is hit is the most recent."""
    insert, fetch = LRUPromptCache.insert_cache, LRUPromptCache.fetch_nearest_cache

    def insert_compact(self, model, tokens, prompt_cache, **options):
        for cache in prompt_cache:
            cache.keys, cache.values = (mx.contiguous(part) for part in columns(cache))
        insert(self, model, tokens, prompt_cache, **options)

    def fetch_and_touch(self, model, tokens):
        found = self._trie.search(model, tokens)
        shorter = len(found.shorter or ())
        hit = found.exact or (found.longer if found.longer and found.common_prefix > shorter else found.shorter)
        if hit:
            self._lru.remove(model, hit)
            self._lru.push(model, hit, self._trie.get(model, hit).cache_type)
        return fetch(self, model, tokens)
    LRUPromptCache.insert_cache, LRUPromptCache.fetch_nearest_cache = insert_compact, fetch_and_touch
