"""vLLM's KVCacheManager: the manager of blocks under its scheduler, without a model and without a GPU.

The calls are those of its scheduler: get_computed_blocks and allocate_slots where a request is admitted, allocate_slots
for each chunk, free at the end, reset_prefix_cache. The manager has ids and no content. For full attention kvcheck keeps
the memory behind the ids; `--groups` has a second group with a sliding window for odd layers, whose ids are others, and
keeps the memory of both here.
"""
import importlib.metadata

import numpy as np
import torch
from engine_requests import IDENTITY, LONGEST, EngineRequests
from kvcheck_adapter import FULL, PrefixAdapter, Refused, Started, Unsupported, whole_blocks
from kvcheck_adapter.storage import STORED
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

GONE = -1


class Request:
    def __init__(self, engine):
        self.engine = engine

    @property
    def tokens(self):
        return self.engine.num_computed_tokens


class BlockManager(PrefixAdapter):
    """Full attention: ids alone."""
    name = "vllm-blocks"
    version = importlib.metadata.version("vllm")
    ids_alone = True
    # The last token is computed for its logits; a block may be found from the moment that it is full, kept or not; and
    # reset_prefix_cache refuses while blocks are in use. FreeKVCacheBlockQueue says which goes first: "The least recent used
    # block is at the front".
    prefix_profile = "last=never publishes=write busy=refused evict=lru"
    spaces = [{"kind": "prefix", "identity": IDENTITY, "quantizes": False, "windows": False, "entries": False,
               "disk": False, "tiers": False, "all": False,
               "operations": ["open", "write", "read", "close", "clear", "epoch", "observe"]}]
    relies_on = {"shapes", "counts"}

    def groups(self, setup):
        return [FullAttentionSpec(block_size=setup.block_tokens, num_kv_heads=setup.kv_heads, head_size=setup.k_dim,
                                  dtype=torch.float32)]

    def start(self, setup, folder, again):
        self.setup, self.requests = setup, EngineRequests(setup.block_tokens)
        specs = self.groups(setup)
        self.blocks_each = setup.capacity_tokens // setup.block_tokens
        size = setup.block_tokens
        config = KVCacheConfig(num_blocks=self.blocks_each * len(specs) + 1,  # and the null block
                               kv_cache_tensors=[],
                               kv_cache_groups=[KVCacheGroupSpec([f"layers{i}"], spec) for i, spec in enumerate(specs)])
        self.manager = KVCacheManager(config, max_model_len=LONGEST, scheduler_block_size=size, hash_block_size=size,
                                      enable_caching=True)
        return Started(size, self.blocks_each * size)

    def open(self, tokens, who, all):
        engine = self.requests.request(tokens, who)
        blocks, hit, boundary = self.manager.get_computed_blocks(engine)
        engine.shared_prefix_boundary = boundary
        if hit:
            # An admission whose first chunk is empty: the hit is pinned, and needs no room.
            if self.manager.allocate_slots(engine, 0, hit, blocks) is None:
                raise RuntimeError("no room for blocks that are there")
        engine.num_computed_tokens = hit
        return Request(engine), hit

    def write(self, request, tokens, k, v):
        engine = request.engine
        more = request.tokens + len(tokens) - engine.num_tokens
        if more > 0:
            # Generated tokens are known before there is room for them: a scheduler without room would preempt.
            needed = whole_blocks(request.tokens + len(tokens), self.setup.block_tokens) - \
                whole_blocks(request.tokens, self.setup.block_tokens)
            if needed * self.manager.num_kv_cache_groups > self.manager.block_pool.get_num_free_blocks():
                return FULL
            engine.append_output_token_ids(tokens[-more:])
        if self.manager.allocate_slots(engine, len(tokens)) is None:
            return FULL
        engine.num_computed_tokens += len(tokens)
        return None

    def blocks(self, request):
        if not request.tokens:
            return []
        return self.shown(request, 0)

    def shown(self, request, group):
        ids = self.manager.get_block_ids(request.engine.request_id)[group]
        return [id or GONE for id in ids]  # 0 is the null block

    def close(self, request, keep):
        self.manager.free(request.engine)

    def clear(self):
        if not self.manager.reset_prefix_cache():
            raise Refused("blocks are in use")

    def epoch(self):
        self.clear()

    def observe(self):
        pool = self.manager.block_pool
        blocks = [block for block in pool.blocks if not block.is_null]
        held = sum(block.ref_cnt > 0 for block in blocks)
        cached = sum(block.ref_cnt == 0 and block.block_hash is not None for block in blocks)
        return {"blocks_total": len(blocks), "blocks_free": pool.get_num_free_blocks() - cached, "blocks_cached": cached,
                "blocks_held": held}


class GroupManager(BlockManager):
    """Even layers full, odd ones with the setup's window: two groups of ids, and memory behind them. All blocks of the
    window are retained, where the server retains what a hit at the end of a prompt needs."""
    name = "vllm-groups"
    ids_alone = False
    # Blocks that the window has left are older than the request's end.
    prefix_profile = "last=never publishes=write busy=refused"
    spaces = [{**BlockManager.spaces[0], "windows": True}]

    def groups(self, setup):
        full = super().groups(setup)
        if not setup.window or setup.layers < 2:
            return full
        return full + [SlidingWindowSpec(block_size=setup.block_tokens, num_kv_heads=setup.kv_heads,
                                         head_size=setup.k_dim, dtype=torch.float32, sliding_window=setup.window)]

    def start(self, setup, folder, again):
        if setup.window == 1:
            raise Unsupported("a window of one token, which no model has: no block of its group is ever found")
        started = super().start(setup, folder, again)
        blocks = self.manager.block_pool.num_gpu_blocks
        dtype = STORED[setup.x]
        ones = [np.full((setup.layers, setup.kv_heads, blocks, setup.block_tokens, dim * dtype.itemsize), 0xFF, np.uint8)
                for dim in (setup.k_dim, setup.v_dim)]
        self.memory = [part.view(dtype) for part in ones]  # NaN where nobody wrote
        return started

    def group_of(self, layer):
        return layer % 2 if self.manager.num_kv_cache_groups == 2 else 0

    def write(self, request, tokens, k, v):
        start = request.tokens
        if super().write(request, tokens, k, v) is FULL:
            return FULL
        places = np.arange(start, start + len(tokens))
        for layer in range(self.setup.layers):
            ids = np.array(self.shown(request, self.group_of(layer)))
            blocks, offsets = ids[places // self.setup.block_tokens], places % self.setup.block_tokens
            there = blocks != GONE
            for part, given in zip(self.memory, (k, v)):
                part[layer][:, blocks[there], offsets[there]] = given[layer][:, there]
        return None

    def read(self, request):
        count, size = request.tokens, self.setup.block_tokens
        if not count:
            return self.setup.no_rows()
        places = np.arange(count)
        retained = np.zeros((self.setup.layers, count), bool)
        k, v = (np.zeros((self.setup.layers, self.setup.kv_heads, count, part.shape[-1]), part.dtype)
                for part in self.memory)
        for layer in range(self.setup.layers):
            ids = np.array(self.shown(request, self.group_of(layer)))
            blocks = ids[places // size]
            retained[layer] = blocks != GONE
            for out, part in zip((k, v), self.memory):
                out[layer] = part[layer][:, np.maximum(blocks, 0), places % size]
        return k, v, retained

    def blocks(self, request):
        return None
