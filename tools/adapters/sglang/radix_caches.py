"""SGLang's radix caches: they and their allocators have ids of slots and no content, so that the memory behind the slots is
kept here, written and read through what they say alone.
"""
import importlib.metadata

import numpy as np
import torch
from engine_requests import IDENTITY, EngineRequests
from kvcheck_adapter import FULL, PrefixAdapter, Refused, Started, Unsupported
from kvcheck_adapter.storage import STORED
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

REQUESTS = 8


class RadixSlots(PrefixAdapter):
    """RadixCache, which the others come from."""
    name = "sglang-radix"
    version = importlib.metadata.version("sglang")
    # The last token is computed for its logits; a full page may be found from its checkpoint on, kept or not; and flush_cache
    # refuses while requests run. Its strategy "lru" is no evict=lru: what a request held is as old as its lookup when it ends.
    prefix_profile = "last=never publishes=write busy=refused"
    spaces = [{"kind": "prefix", "identity": IDENTITY, "quantizes": False, "windows": False, "entries": False,
               "disk": False, "tiers": False, "all": False,
               "operations": ["open", "write", "read", "close", "evict", "clear", "epoch", "observe"]}]
    relies_on = {"shapes", "counts"}

    def start(self, setup, folder, again):
        self.setup = setup
        page = setup.block_tokens
        pages = setup.capacity_tokens // page
        # An extend makes room for a page more than it needs, and a decode for one that it may not need.
        spare = page if page > 1 else 0
        self.size = pages * page + spare
        allocator = self.allocator(page)
        params = CacheInitParams(disable=False, req_to_token_pool=ReqToTokenPool(REQUESTS, self.size + page, "cpu", False),
                                 token_to_kv_pool_allocator=allocator, page_size=page)
        self.cache = self.made(params)
        self.engine = EngineRequests(self.cache)
        self.memory = [self.unwritten(dim) for dim in (setup.k_dim, setup.v_dim)]
        return Started(page, pages * page)

    def allocator(self, page):
        if page == 1:
            return TokenToKVPoolAllocator(self.size, torch.float32, "cpu", None, False)
        return PagedTokenToKVPoolAllocator(self.size, page, torch.float32, "cpu", None, False)

    def made(self, params):
        return RadixCache(params)

    def unwritten(self, dim):
        """(layers, heads, slots, dim): NaN where nobody wrote; slot 0 is for padding."""
        setup, dtype = self.setup, STORED[self.setup.x]
        slots = self.size + setup.block_tokens
        return np.full((setup.layers, setup.kv_heads, slots, dim * dtype.itemsize), 0xFF, np.uint8).view(dtype)

    def open(self, tokens, who, all):
        req = self.engine.open(tokens, who)
        return req, req.prefix_len

    def write(self, req, tokens, k, v):
        def store(start, slots):
            part = slice(start, start + len(slots))
            for layer in range(self.setup.layers):
                places = self.places(slots, layer)
                for memory, given in zip(self.memory, (k, v)):
                    memory[layer][:, places] = given[layer][:, part]
        return self.engine.write(req, tokens, store)

    def places(self, slots, layer):
        """Where a layer has the tokens of the slots."""
        return slots.numpy()

    def read(self, req):
        slots = self.engine.slots(req)
        if not len(slots):
            return self.setup.no_rows()
        places = np.stack([self.places(slots, layer) for layer in range(self.setup.layers)])
        k, v = (np.stack([part[layer][:, places[layer]] for layer in range(self.setup.layers)]) for part in self.memory)
        return k, v, places > 0

    def blocks(self, req):
        page = self.setup.block_tokens
        return [int(slot) // page for slot in self.engine.slots(req)[::page]]

    def close(self, req, keep):
        self.engine.close(req, keep)

    def evict(self, tokens):
        self.cache.token_to_kv_pool_allocator.evict_to_free_tokens(self.cache, tokens)

    def clear(self):
        """flush_cache of its scheduler."""
        if self.engine.live:
            raise Refused("requests are running")
        self.cache.reset()
        self.cache.req_to_token_pool.clear()
        self.cache.token_to_kv_pool_allocator.clear()

    def epoch(self):
        self.clear()

    def pools(self):
        """(tokens in all, free, evictable, held) of each pool."""
        cache = self.cache
        own = sum(map(self.engine.own_tokens, self.engine.live))
        return [(self.size, cache.token_to_kv_pool_allocator.available_size(), cache.evictable_size(),
                 cache.protected_size() + own)]

    def observe(self):
        page = self.setup.block_tokens
        total, free, cached, held = (sum(part) // page for part in zip(*self.pools()))
        return {"blocks_total": total, "blocks_free": free, "blocks_cached": cached, "blocks_held": held}


class UnifiedSlots(RadixSlots):
    """UnifiedRadixCache with full attention."""
    components = (ComponentType.FULL,)

    def __init__(self, tree):
        self.tree = tree
        self.name = f"sglang-{tree}"

    def made(self, params):
        params.tree_components, params.tree_core_backend = self.components, self.tree
        return UnifiedRadixCache(params)


class Mapping(BaseSWAKVPool):
    """The map from slots of full attention to those of the window, which is all that SGLang's pool has to do here."""
    swa_kv_pool = None

    def __init__(self):
        pass

    def register_mapping(self, full_to_swa_index_mapping):
        self.full_to_swa_index_mapping = full_to_swa_index_mapping

    def translate_loc_from_full_to_swa(self, kv_indices):
        return self.full_to_swa_index_mapping[kv_indices]


Mapping.__abstractmethods__ = frozenset()  # buffers, which nobody asks for


class WindowSlots(UnifiedSlots):
    """Even layers full, odd ones with the setup's window: slots of two pools, of which the window's is half as large."""
    components = (ComponentType.FULL, ComponentType.SWA)
    # Slots that the window has left are given back, so that a prompt is found as far as whole kept ones reach.
    prefix_profile = UnifiedSlots.prefix_profile + " partial=prefix"
    spaces = [{**UnifiedSlots.spaces[0], "windows": True}]

    def __init__(self, tree):
        super().__init__(tree)
        self.name = f"sglang-window-{tree}"

    def start(self, setup, folder, again):
        if setup.window == 1:
            raise Unsupported("a window of one token: SGLang's are of the tokens before")
        # Without a window of the case, or layers that have one, it is longer than any prompt.
        self.window = setup.window if setup.window and setup.layers > 1 else setup.capacity_tokens + 2
        return super().start(setup, folder, again)

    def allocator(self, page):
        # The window's pool is the capacity; with twice as many slots for full attention it is what runs short first.
        self.window_size = self.size
        self.size *= 2
        return SWATokenToKVPoolAllocator(self.size, self.window_size, page, torch.float32, "cpu", Mapping(), False)

    def made(self, params):
        params.sliding_window_size = self.window - 1
        return super().made(params)

    def places(self, slots, layer):
        if layer % 2 == 0 or not self.setup.window:
            return slots.numpy()
        return self.cache.token_to_kv_pool_allocator.translate_loc_from_full_to_swa(slots).numpy()

    def blocks(self, req):
        return None

    def pools(self):
        cache, allocator, engine = self.cache, self.cache.token_to_kv_pool_allocator, self.engine
        own = sum(map(engine.own_tokens, engine.live))
        of_window = sum(engine.own_tokens(req, req.kv.get_evicted_seqlen(ComponentType.SWA)) for req in engine.live)
        return [(self.size, allocator.full_available_size(), cache.full_evictable_size(),
                 cache.full_protected_size() + own),
                (self.window_size, allocator.swa_available_size(), cache.swa_evictable_size(),
                 cache.swa_protected_size() + of_window)]
