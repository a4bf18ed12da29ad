"""vllm-mlx's MemoryAwarePrefixCache, with the calls of its scheduler and generators: fetch, clone_for_replay ("callers must
clone"; the scheduler's batch copies instead), store without taking out what is shorter, as _cleanup_finished does;
save_to_disk and load_from_disk, which its server calls when it ends and when it starts. It has no notion of an identity: a
model has a cache of its own."""
import importlib.metadata

from kvcheck_adapter import PrefixAdapter, Started, Unsupported, parse_format
from prompts import Prompt

from vllm_mlx.memory_cache import MemoryAwarePrefixCache, MemoryCacheConfig

ANY_NUMBER = 1 << 30


class MemoryStore(PrefixAdapter):
    name = "vllm-mlx-memory"
    version = importlib.metadata.version("vllm-mlx")
    # Longer entries are cut at any token; others than a prefix or a continuation are looked at where neither is there.
    prefix_profile = "grain=token last=always partial=longer evict=lru"
    spaces = [{"kind": "prefix", "identity": [], "quantizes": False, "windows": False,
               "disk": False, "tiers": False, "operations": ["open", "write", "read", "close", "fork", "trim_to", "clear",
                                                             "save", "load", "observe"]}]
    relies_on = {"shapes", "counts"}

    def start(self, setup, folder, again):
        self.setup = setup
        coded = {}
        if not setup.is_plain:
            if setup.k != setup.v:
                raise Unsupported("K and V have one format")
            affine = parse_format(setup.k)
            coded = {"kv_quantize": True, "kv_bits": affine.bits, "kv_group_size": affine.group,
                     "kv_min_quantize_tokens": setup.quantize_from}
        self.store = MemoryAwarePrefixCache(object(), MemoryCacheConfig(
            max_memory_mb=1, max_entries=setup.max_entries or ANY_NUMBER, min_prefix_tokens=1, **coded))
        self.budget = setup.capacity_tokens * setup.token_bytes
        self.store._max_memory = self.budget  # its option is in whole megabytes
        return Started(1, setup.capacity_tokens, holds_requests=False)

    def open(self, tokens, who, all):
        caches, rest = self.store.fetch(tokens)
        if caches is not None:
            caches = self.store.clone_for_replay(caches)
        hit = len(tokens) - len(rest) if caches is not None else 0
        return Prompt(self.setup, who, tokens[:hit], caches), hit

    def close(self, request, keep):
        if keep and request.tokens:
            self.store.store(request.tokens, request.caches, evict_prefixes=False)

    def fork(self, request):
        return request.copy()

    def trim_to(self, request, tokens):
        request.trim_to(tokens)

    def clear(self):
        self.store.clear()

    def save(self, path):
        self.store.save_to_disk(str(path))

    def load(self, path):
        self.store.load_from_disk(str(path))

    def observe(self):
        return {"entries": len(self.store), "bytes": self.store._current_memory, "budget_bytes": self.budget}


class CodedStore(MemoryStore):
    """kv_quantize: what is stored is kept in codes, from kv_min_quantize_tokens tokens on."""
    name = "vllm-mlx-codes"
    spaces = [{**MemoryStore.spaces[0], "quantizes": True, "formats": ["affine:4:g32:*", "affine:8:g32:*"]}]


STORE = MemoryStore


def repair():
    """What is loaded is stored as if it were new: once, and within the limits."""
    load = MemoryAwarePrefixCache.load_from_disk

    def load_beside(self, folder):
        beside = MemoryAwarePrefixCache(object(), self._config)
        loaded = load(beside, folder)
        for tokens, entry in beside._entries.items():
            self.store(list(tokens), entry.cache, evict_prefixes=False)
        return loaded
    MemoryAwarePrefixCache.load_from_disk = load_beside
