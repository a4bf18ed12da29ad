"""What vLLM offloads blocks to, with the calls of its OffloadingConnector's scheduler: on_new_request and a lookup of each
block until nothing is pending, prepare_load, the copy, complete_load; prepare_store, the copy and complete_store for each
block that is full; on_request_finished, and on_schedule_end after each of these steps.

CPUOffloadingManager has ids of its own memory and no content: that memory is kept here. TieringOffloadingManager has real
memory, which its file tier writes and reads. What a request has found is copied: a GPU's memory is its own.
"""
import atexit
import importlib.metadata
import pathlib
import time
from types import SimpleNamespace

import numpy as np
from engine_requests import IDENTITY, EngineRequests
from kvcheck_adapter import CollectedPrompt, PrefixAdapter, Refused, Started
from kvcheck_adapter.storage import STORED
from vllm.v1.kv_offload.base import (LookupResult, OffloadingKVEventsConfig, ReqContext, ScheduleEndContext,
                                     make_offload_key)
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig,
                                       OffloadingModelConfig, OffloadingParallelConfig)
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager, TieringOffloadingManager
from vllm.v1.metrics.cache_hit_source import CacheHitSource

STEP = ScheduleEndContext((), ())
MOST_STEPS = 100
PAGE = 4096  # what the file tier's memory is aligned to


class OffloadStore(PrefixAdapter):
    name = "vllm-offload"
    version = importlib.metadata.version("vllm")
    policy = "lru"
    # All blocks of a prompt may hit: the scheduler takes a token off. A block may be found from the moment that it is full,
    # kept or not. The scheduler resets nothing while blocks are in use. LRUCachePolicy is no evict=lru: a request holds what
    # it found only while it is loaded, and does not offer it again when it ends.
    prefix_profile = "last=always publishes=write busy=refused"
    spaces = [{"kind": "prefix", "identity": IDENTITY, "quantizes": False, "windows": False, "entries": False,
               "disk": False, "tiers": False,
               "operations": ["open", "write", "read", "close", "clear", "epoch", "observe"]}]
    relies_on = {"shapes", "counts"}
    manager = None

    def start(self, setup, folder, again):
        self.end()
        self.setup, self.requests, self.live = setup, EngineRequests(setup.block_tokens), set()
        self.chunks = setup.capacity_tokens // setup.block_tokens
        self.chunk_bytes = setup.block_tokens * setup.token_bytes
        self.make(folder)
        # What open requests have written takes room, since it is found.
        return Started(setup.block_tokens, self.chunks * setup.block_tokens)

    def end(self):
        self.manager = None

    def make(self, folder):
        """Sets `manager`, and `memory`: bytes of each of its chunks."""
        self.manager = CPUOffloadingManager(self.chunks, cache_policy=self.policy)
        self.memory = np.full((self.chunks, self.chunk_bytes), 0xFF, np.uint8)  # NaN where nobody wrote

    def keys(self, engine, context):
        """Of all whole blocks, each with its position, as update_offload_keys gives them."""
        keys = [make_offload_key(digest, 0) for digest in engine.block_hashes]
        for i, key in enumerate(keys):
            context.set_offload_key_position(key, (i + 1) * self.setup.block_tokens)
        return keys

    def found(self, keys, context):
        """How many of the first keys are there, ready to be loaded."""
        for _ in range(MOST_STEPS):
            hits, pending = 0, False
            for key in keys:
                result = self.manager.lookup(key, context)
                if result is LookupResult.MISS:
                    break
                pending |= result is not LookupResult.HIT
                hits += result is not LookupResult.RETRY
            if not pending:
                return hits
            self.step()
            self.wait()
        raise RuntimeError(f"after {MOST_STEPS} steps the request still waits for blocks that are there")

    def wait(self):
        """Until what files are asked for is in memory, as far as it will be."""

    def step(self):
        self.manager.on_schedule_end(STEP)

    def rows_of(self, stored):
        """K and V as an array has them of chunks as memory has them: of each chunk K of its tokens, then V."""
        s = self.setup
        dtype, chunks = STORED[s.x], len(stored)
        size = s.layers * s.kv_heads * s.block_tokens * dtype.itemsize
        k = np.ascontiguousarray(stored[:, :size * s.k_dim]).view(dtype)
        v = np.ascontiguousarray(stored[:, size * s.k_dim:]).view(dtype)
        return tuple(part.reshape(chunks, s.layers, s.kv_heads, s.block_tokens, dim).transpose(1, 2, 0, 3, 4).reshape(
            s.layers, s.kv_heads, chunks * s.block_tokens, dim) for part, dim in ((k, s.k_dim), (v, s.v_dim)))

    def stored_of(self, k, v):
        """The opposite."""
        s = self.setup
        return np.concatenate([np.ascontiguousarray(
            part.reshape(s.layers, s.kv_heads, -1, s.block_tokens, part.shape[-1]).transpose(2, 0, 1, 3, 4)).view(
                np.uint8).reshape(part.shape[2] // s.block_tokens, -1) for part in (k, v)], axis=1)

    def open(self, tokens, who, all):
        engine = self.requests.request(tokens, who)
        context = ReqContext(engine.request_id)
        self.manager.on_new_request(context)
        keys = self.keys(engine, context)
        found = keys[:self.found(keys, context)]
        k, v = self.setup.no_rows()
        tier = self.tier(found, context)
        if found:
            chunks = np.asarray(self.manager.prepare_load(found, context).chunk_ids)
            k, v = self.rows_of(self.memory[chunks, :self.chunk_bytes])
            self.manager.complete_load(found, context)
        self.step()
        hit = len(found) * self.setup.block_tokens
        request = CollectedPrompt(who, tokens[:hit], k, v)
        request.engine, request.context, request.offered = engine, context, len(found)
        self.live.add(context.req_id)
        return request, hit, tier

    def tier(self, found, context):
        return None

    def write(self, request, tokens, k, v):
        request.append(tokens, k, v)
        engine, size = request.engine, self.setup.block_tokens
        more = len(request.tokens) - engine.num_tokens
        if more > 0:
            engine.append_output_token_ids(tokens[-more:])
        full = len(request.tokens) // size
        keys = self.keys(engine, request.context)[request.offered:full]
        if not keys:
            return
        output = self.manager.prepare_store(keys, request.context)
        if output is not None and output.keys_to_store:
            stored = self.stored_of(*(part[:, :, request.offered * size:full * size] for part in request.rows()))
            chosen = [keys.index(key) for key in output.keys_to_store]
            self.memory[np.asarray(output.store_spec.chunk_ids), :self.chunk_bytes] = stored[chosen]
            self.manager.complete_store(output.keys_to_store, request.context)
        request.offered = full
        self.step()

    def close(self, request, keep):
        self.live.discard(request.context.req_id)
        self.manager.on_request_finished(request.context)
        self.step()

    def clear(self):
        if self.live:
            raise Refused("blocks are in use")
        self.manager.reset_cache()
        self.manager.on_reset_flushed()

    def epoch(self):
        self.clear()

    def observe(self):
        pool = self.primary()
        free, idle = pool._get_num_free_chunks(), pool._num_evictable_cache_chunks
        return {"blocks_total": self.chunks, "blocks_free": free, "blocks_cached": idle,
                "blocks_held": self.chunks - free - idle}

    def primary(self):
        return self.manager


class ArcStore(OffloadStore):
    name = "vllm-offload-arc"
    policy = "arc"


class FileTierStore(OffloadStore):
    name = "vllm-file-tier"
    # Nothing is evicted from files. A file has no checksum.
    prefix_profile = "last=always publishes=write busy=refused flips=served"
    spaces = [{**OffloadStore.spaces[0], "disk": True, "tiers": True, "damages": ["cut", "flip"],
               "operations": ["open", "write", "read", "close", "settle", "restart", "damage"]}]
    made = 0

    def __init__(self):
        atexit.register(self.end)

    def make(self, folder):
        s = self.setup
        row = -(-self.chunk_bytes // PAGE) * PAGE
        FileTierStore.made += 1
        region = SharedOffloadRegion(f"kvcheck_{id(self)}_{self.made}", self.chunks, 0, row, row, barrier=lambda: None)
        self.memory = np.frombuffer(region.mmap_obj, np.uint8).reshape(self.chunks, row)
        primary = CPUPrimaryTierOffloadingManager(self.chunks, region)
        config = OffloadingConfig(
            groups=(OffloadingGroupConfig(s.block_tokens, tuple(f"layer{i}" for i in range(s.layers)), 0),),
            worker_kv_bytes_per_block=row, enable_kv_cache_events=False, extra_config={}, engine_id="kvcheck",
            model=OffloadingModelConfig("model", s.x), cache=OffloadingCacheConfig(s.block_tokens, 1),
            parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True))
        tiers = []
        if folder is not None:
            spec = SimpleNamespace(config=config, blocks_per_chunk=1, kv_events_config=OffloadingKVEventsConfig(False, False))
            tiers = [FileSystemTierManager(spec, primary.get_kv_memoryview(), "fs", folder, n_read_threads=1,
                                           n_write_threads=1)]
        self.manager = TieringOffloadingManager(primary, tiers)

    def end(self):
        if self.manager is not None:
            self.settle()
            self.memory = None  # or the region stays mapped
            self.manager.shutdown()
            self.manager = None

    def write(self, request, tokens, k, v):
        super().write(request, tokens, k, v)
        self.wait()  # a model's step takes longer than a file

    def tier(self, found, context):
        sources = {self.manager.get_load_source(key, context) for key in found}
        return "disk" if CacheHitSource.DISK in sources else "memory"

    def wait(self):
        for tier in self.manager.secondary_tiers:
            tier.drain_jobs()
            time.sleep(0.0005)  # its thread of lookups tells of no end

    def settle(self):
        self.wait()
        self.step()

    def observe(self):
        self.settle()  # what is being written to files is held
        return super().observe()

    def primary(self):
        return self.manager.primary_tier


class Found(set):
    """What a request's lookups have found."""


def repair():
    """A promotion does not push out what its own request has found; a reset forgets files, too."""
    lookup, promote, reset = (TieringOffloadingManager.lookup, TieringOffloadingManager._initiate_promotion,
                              TieringOffloadingManager.reset_cache)

    def found_by(context):
        if context.get_state(Found) is None:
            context.set_state(Found())
        return context.get_state(Found)

    def lookup_and_note(self, key, req_context, **options):
        result = lookup(self, key, req_context, **options)
        if result in (LookupResult.HIT, LookupResult.HIT_PENDING):
            found_by(req_context).add(key)
        return result

    def promote_beside(self, tier_idx, key, req_context):
        policy = self.primary_tier._policy
        evict = policy.evict
        policy.evict = lambda count, protected: evict(count, protected | found_by(req_context))
        try:
            return promote(self, tier_idx, key, req_context)
        finally:
            del policy.evict

    def reset_all(self):
        reset(self)
        for tier in self.secondary_tiers:
            for file in pathlib.Path(tier.file_mapper.base_path).parent.rglob("*.bin"):
                file.unlink()
    TieringOffloadingManager.lookup, TieringOffloadingManager._initiate_promotion = lookup_and_note, promote_beside
    TieringOffloadingManager.reset_cache = reset_all
    FileTierStore.spaces = [{**FileTierStore.spaces[0],
                             "operations": [*FileTierStore.spaces[0]["operations"], "clear", "epoch"]}]
