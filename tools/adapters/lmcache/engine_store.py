"""LMCache's LMCacheEngine, with the calls of its connector for vLLM (integration/vllm/vllm_v1_adapter.py): a lookup that
pins, a retrieve of what was found, lookup_unpin; store with a mask over what was found when the request has ended. All of
it is LMCache's own but for the connector of a GPU, which copies between arrays here and the engine's memory objects.

Of an identity an engine knows tags of a request: `user` is the salt here, `adapter` the adapter.
"""
import gc
import hashlib
import importlib.metadata
import os
import tempfile
import time

os.environ.update(LMCACHE_TRACK_USAGE="false", LMCACHE_LOG_LEVEL="ERROR")

import logging

logging.disable(logging.CRITICAL)

import numpy as np
import torch
from kvcheck_adapter import CollectedPrompt, PrefixAdapter, Started
from kvcheck_adapter.torch_arrays import TYPES, to_numpy, to_torch
from lmcache.v1.cache_engine import LMCacheEngineBuilder
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.gpu_connector import MockGPUConnector
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend

GIB = 1 << 30
ALIGNMENT = 4096  # of its allocator: what a chunk takes is a multiple


class Connector(MockGPUConnector):
    """Arrays (K and V, layers, tokens, heads * channels) in place of a paged cache."""

    def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
        for made, start, end in zip(memory_objs, starts, ends):
            made.tensor.copy_(kwargs["source"][:, :, start:end])

    def batched_to_gpu(self, memory_objs, starts, ends, **kwargs):
        for made, start, end in zip(memory_objs, starts, ends):
            kwargs["target"][:, :, start:end] = made.tensor


class MemoryStore(PrefixAdapter):
    name = "lmcache-memory"
    version = importlib.metadata.version("lmcache")
    # All chunks of a prompt may hit: vLLM's connector takes one token off before it computes. Its policy is LRU by default.
    prefix_profile = "last=always evict=lru"
    spaces = [{"kind": "prefix", "identity": ["salt", "adapter"], "quantizes": False, "windows": False, "entries": False,
               "disk": False, "tiers": False, "same_dims": True,
               "operations": ["open", "write", "read", "close", "clear", "observe"]}]
    relies_on = {"shapes", "counts"}
    # A store copies all its chunks before it looks which are there, so that it takes room for two.
    memory_of_capacity = 2
    disk_of_capacity = 0
    keeps_in_memory = True
    skips_what_was_found = True

    def __init__(self):
        self.engine, self.made, self.folder = None, 0, None

    def start(self, setup, folder, again):
        self.end()
        self.setup, self.opened = setup, 0
        self.made += 1
        self.engine_id = f"engine {self.made}"
        chunks = setup.capacity_tokens // setup.block_tokens
        room = chunks * -(-setup.block_tokens * setup.token_bytes // ALIGNMENT) * ALIGNMENT / GIB
        options = {}
        if self.disk_of_capacity:
            self.folder = tempfile.TemporaryDirectory() if folder is None else None
            options = {"local_disk": (folder or self.folder.name) + "/",
                       "max_local_disk_size": room * self.disk_of_capacity}
        config = LMCacheEngineConfig.from_defaults(chunk_size=setup.block_tokens, local_cpu=self.keeps_in_memory,
                                                   max_local_cpu_size=room * self.memory_of_capacity, **options)
        shape = (setup.layers, 2, setup.block_tokens, setup.kv_heads, setup.k_dim)
        metadata = LMCacheMetadata("model", 1, 1, 0, 0, TYPES[setup.x], shape, chunk_size=setup.block_tokens)
        self.engine = LMCacheEngineBuilder.get_or_create(self.engine_id, config, metadata, Connector(shape),
                                                         lambda tensor, source: None, lambda sent, source: sent)
        self.engine.post_init()
        if self.made == 1:
            gc.freeze()  # each engine that is made collects, and need not look through all modules
        return Started(setup.block_tokens, chunks * setup.block_tokens, holds_requests=False)

    def end(self):
        if self.engine is not None:
            LMCacheEngineBuilder.destroy(self.engine_id)
            self.engine = None
        if self.folder is not None:
            self.folder.cleanup()

    def tags(self, who):
        tags = {"user": who.salt, "adapter": who.adapter}
        return {"request_configs": {f"lmcache.tag.{tag}": text for tag, text in tags.items() if text is not None}}

    def open(self, tokens, who, all):
        self.opened += 1
        name = str(self.opened)
        found = self.engine.lookup(tokens, lookup_id=name, pin=True, **self.tags(who))
        tier = "disk" if "LocalDiskBackend" in self.engine.lookup_pins.get(name, ()) else "memory"
        s = self.setup
        target = torch.zeros((2, s.layers, found, s.kv_heads * s.k_dim), dtype=TYPES[s.x])
        try:
            hit = int(self.engine.retrieve(tokens[:found], target=target, req_id=name, **self.tags(who)).sum()) if found else 0
        finally:
            self.engine.lookup_unpin(name)
        rows = target[:, :, :hit].reshape(2, s.layers, hit, s.kv_heads, s.k_dim).transpose(2, 3)
        request = CollectedPrompt(who, tokens[:hit], *(to_numpy(part) for part in rows))
        request.hit = hit
        return request, hit, tier if self.spaces[0]["tiers"] else None

    def close(self, request, keep):
        if not keep or not request.tokens or self.skips_what_was_found and len(request.tokens) == request.hit:
            return
        parts = [to_torch(np.ascontiguousarray(part.transpose(0, 2, 1, 3)), self.setup.x).flatten(2)
                 for part in request.rows()]
        mask = torch.ones(len(request.tokens), dtype=torch.bool)
        if self.skips_what_was_found:
            mask[:request.hit] = False
        self.engine.store(request.tokens, mask=mask, source=torch.stack(parts), **self.tags(request.who))
        self.settle()  # the next request comes when the writer has done its work

    def clear(self):
        self.engine.clear()

    def backend(self, name):
        return self.engine.storage_manager.storage_backends[name]

    def settle(self):
        if self.disk_of_capacity:
            worker = self.backend("LocalDiskBackend").disk_worker
            while worker.put_tasks:
                time.sleep(0.0005)

    def observe(self):
        cpu = self.backend("LocalCPUBackend")
        return {"bytes": sum(made.get_physical_size() for made in cpu.hot_cache.values()),
                "budget_bytes": int(cpu.config.max_local_cpu_size * GIB)}


class DiskStore(MemoryStore):
    """Memory is what files pass through."""
    name = "lmcache-disk"
    # At a start its folder is not looked at.
    prefix_profile = "last=always evict=lru persists=never flips=served"
    spaces = [{**MemoryStore.spaces[0], "disk": True,
               "operations": [*MemoryStore.spaces[0]["operations"], "settle", "restart"]}]
    disk_of_capacity = 1
    keeps_in_memory = False

    def observe(self):
        disk = self.backend("LocalDiskBackend")
        return {"bytes": sum(meta.size for meta in disk.dict.values()), "budget_bytes": disk.max_cache_size}


class TierStore(DiskStore):
    """Both, and twice as much on disk as in memory."""
    name = "lmcache-tiers"
    spaces = [{**DiskStore.spaces[0], "tiers": True}]
    disk_of_capacity = 4
    keeps_in_memory = True


STORE = MemoryStore


def repair():
    """A file's name says all of its key; clear forgets what is on disk, too; what finds no room in memory, or is no whole
    file, is not found; a store is of all chunks."""
    MemoryStore.skips_what_was_found = False
    allocate, read = LocalCPUBackend.allocate, LocalDiskBackend.read_file

    def path_of_all(self, key):
        whole = (key.model_name, key.world_size, key.worker_id, key.chunk_hash, key._dtype_str, key.tags)
        return os.path.join(self.path, hashlib.sha256(repr(whole).encode()).hexdigest() + ".pt")

    def clear(self):
        tokens = 0
        for key, meta in list(self.dict.items()):
            if meta.can_evict:
                tokens += meta.shape[meta.fmt.token_dim()]
                self.current_cache_size -= meta.size
                self.remove(key)
        return tokens

    def allocate_or_not(self, shapes, dtypes, fmt=None, eviction=True, busy_loop=False):
        return allocate(self, shapes, dtypes, fmt, eviction, busy_loop=False)

    def read_whole(self, key, buffer, path):
        if not os.path.exists(path) or os.path.getsize(path) < len(buffer):
            self.current_cache_size -= self.dict.pop(key).size
            raise OSError(f"{path} is not whole")
        read(self, key, buffer, path)

    def load(self, key, path, dtype, shape, fmt):
        return self._load_chunk_into_memory(key, path, self.local_cpu_backend.allocate(shape, dtype, fmt))
    LocalCPUBackend.allocate = allocate_or_not
    LocalDiskBackend._key_to_path, LocalDiskBackend.clear = path_of_all, clear
    LocalDiskBackend.read_file, LocalDiskBackend.load_bytes_from_disk = read_whole, load
