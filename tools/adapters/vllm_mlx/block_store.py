"""vllm-mlx's BlockAwarePrefixCache over its PagedCacheManager, with the calls of its scheduler: fetch_cache and
reconstruct_cache where a request is added, store_cache with the extracted states where it has finished. The scheduler
releases nothing then ("blocks should persist for future requests to share"), although the class asks for release_cache."""
import importlib.metadata

from kvcheck_adapter import PrefixAdapter, Started
from prompts import Prompt, columns

from vllm_mlx.paged_cache import PagedCacheManager
from vllm_mlx.prefix_cache import BlockAwarePrefixCache


class BlockStore(PrefixAdapter):
    name = "vllm-mlx-blocks"
    version = importlib.metadata.version("vllm-mlx")
    prefix_profile = "last=always evict=lru"  # "the LRU eviction will clean up unused blocks" (scheduler.py)
    spaces = [{"kind": "prefix", "identity": [], "quantizes": False, "windows": False, "entries": False, "disk": False,
               "tiers": False, "operations": ["open", "write", "read", "close", "clear"]}]
    relies_on = {"shapes", "counts"}

    def start(self, setup, folder, again):
        self.setup, self.opened = setup, 0
        blocks = setup.capacity_tokens // setup.block_tokens
        self.store = BlockAwarePrefixCache(object(), PagedCacheManager(block_size=setup.block_tokens,
                                                                       max_blocks=blocks + 1))  # one is null
        return Started(setup.block_tokens, blocks * setup.block_tokens, holds_requests=False)

    def open(self, tokens, who, all):
        self.opened += 1
        name = str(self.opened)
        table, rest = self.store.fetch_cache(name, tokens)
        caches = self.store.reconstruct_cache(table) if table and table.num_tokens else None
        hit = table.num_tokens if caches else 0
        request = Prompt(self.setup, who, tokens[:hit], caches)
        request.name = name
        return request, hit

    def close(self, request, keep):
        if keep and request.tokens:
            states = [{"state": columns(cache), "meta_state": (str(cache.offset),), "class_name": "KVCache"}
                      for cache in request.caches]
            self.store.store_cache(request.name, request.tokens, states)

    def clear(self):
        self.store.clear()


STORE = BlockStore


def repair():
    """Blocks are found by all tokens before them. What finished requests hold stays held: nothing is said of what is
    evicted."""
    def fetch(self, request_id, tokens):
        found = self._find_best_prefix_match(tokens)
        if found is None:
            return None, tokens
        prefix, ids = found
        table = self.paged_cache.create_block_table(request_id)
        for block_id in ids:
            self.paged_cache.increment_ref(block_id)
            table.add_block(block_id, self.block_size)
        return table, tokens[len(prefix):]
    BlockAwarePrefixCache.fetch_cache = fetch
    PagedCacheManager.find_cached_block = lambda self, tokens: None
    BlockStore.prefix_profile = "last=always"
