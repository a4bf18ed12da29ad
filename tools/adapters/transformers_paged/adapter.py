"""The PagedAttentionCache of transformers' continuous batching before kvcheck, under the calls of its own scheduler and batch
processor (continuous_batching/scheduler.py, continuous_api.py): before each batch the safety margin, a prefix match where a
request is taken up, can_store_request_tokens for a chunk of the prompt and for each generated token, the cache's own write and
read indices, mark_complete_blocks after the forward pass, finish_request at the end. It has no notion of an identity."""
import importlib.metadata
import math
from types import SimpleNamespace

import torch
from kvcheck_adapter import FULL, PrefixAdapter, Refused, Started, Unsupported
from kvcheck_adapter.torch_arrays import TYPES, to_numpy, to_torch
from transformers import ContinuousBatchingConfig, LlamaConfig
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.requests import RequestState, RequestStatus
from transformers.generation.continuous_batching.scheduler import FIFOScheduler

ALONE = SimpleNamespace(tp_size=1, are_kv_heads_tp_ed=lambda: False)
REQUESTS = 64


class PagedCache(PrefixAdapter):
    name = "transformers-paged"
    version = importlib.metadata.version("transformers")
    # A block may be found from the moment that it is full, kept or not. A session ends when its requests have ended.
    prefix_profile = "last=never publishes=write busy=refused"
    spaces = [{"kind": "prefix", "identity": [], "quantizes": False, "windows": False, "entries": False, "disk": False,
               "tiers": False, "all": False, "same_dims": True,
               "operations": ["open", "write", "read", "close", "fork", "clear", "epoch", "observe"]}]
    relies_on = {"shapes", "counts"}

    def start(self, setup, folder, again):
        self.setup, self.opened, self.live = setup, 0, {}
        config = LlamaConfig(num_hidden_layers=setup.layers, num_key_value_heads=setup.kv_heads,
                             num_attention_heads=setup.kv_heads, head_dim=setup.k_dim,
                             hidden_size=setup.kv_heads * setup.k_dim, vocab_size=8, attn_implementation="sdpa")
        blocks = setup.capacity_tokens // setup.block_tokens
        margin = FIFOScheduler(None, None, REQUESTS).safety_margin
        # Below the scheduler's margin of free blocks all that nobody holds is evicted: so many blocks more.
        batching = ContinuousBatchingConfig(page_size=setup.block_tokens, max_batch_tokens=64, max_memory_percent=0.5,
                                            num_blocks=math.ceil(blocks / (1 - margin)), max_blocks_per_request=0)
        self.cache = PagedAttentionCache(config, batching, "cpu", ALONE, dtype=TYPES[setup.x])
        self.scheduler = FIFOScheduler(self.cache, batching.safety_margin, REQUESTS)
        (self.allocator,) = self.cache.cache_allocators.values()
        return Started(setup.block_tokens, blocks * setup.block_tokens)

    def open(self, tokens, who, all):
        """As _process_candidates begins."""
        self.opened += 1
        state = RequestState(request_id=str(self.opened), initial_tokens=list(tokens))
        self.scheduler._try_to_meet_safety_margin()
        self.scheduler.add_waiting_request(state)
        taken = set()
        self.scheduler._infer_request_tokens(state, taken)
        if not taken:  # its first chunk, which comes with the first write, is not looked up again
            self.scheduler.waiting_requests.pop(state.request_id)
            self.scheduler.active_requests[state.request_id] = state
            state.status = RequestStatus.PREFILLING
        self.scheduler.waiting_requests_order.remove(state.request_id)
        self.live[state.request_id] = state
        return state, state.position_offset

    def write(self, state, tokens, k, v):
        """A chunk of the prompt, and a batch for each token that follows it."""
        count = len(tokens)
        self.scheduler._try_to_meet_safety_margin()
        if not self.cache.can_store_request_tokens(state, count, dry_run=True):
            # As OffloadingManager.offload_requests begins; what it takes from requests after that is not asked.
            self.cache.evict_cached_blocks()
            if not self.cache.can_store_request_tokens(state, count, dry_run=True):
                return FULL
        done = min(count, max(0, len(state.initial_tokens) - state.position_offset))
        self.forward(state, 0, done, k, v)
        for index in range(done, count):
            if state.position_offset == len(state.initial_tokens) + len(state.generated_tokens):
                state.generated_tokens.append(tokens[index])  # update_and_check_completion
            self.scheduler._try_to_meet_safety_margin()
            self.forward(state, index, index + 1, k, v)
        return None

    def forward(self, state, start, end, k, v):
        """The rows [start, end) that are given, through prepare_batch_tensors, the model and update_batch."""
        count, past = end - start, state.position_offset
        if not count:
            return
        if not self.cache.can_store_request_tokens(state, count):
            raise RuntimeError("no room, where a dry run found some")
        state.remaining_prefill_tokens = state.remaining_prefill_tokens[count:]
        complete = self.cache.count_new_complete_blocks(state, count)
        read, write = [[]], [[]]
        self.cache.extend_read_and_write_indices(state.request_id, past, count, read, write)
        state.position_offset += count
        for layer in range(self.setup.layers):
            self.cache.update(self.given(k, layer, start, end), self.given(v, layer, start, end), layer, {
                "cu_seq_lens_k": {self.allocator.layer_type: torch.tensor([0, past + count])},
                "max_length_k": {self.allocator.layer_type: past + count},
                "read_index": [torch.tensor(read[0])], "write_index": [torch.tensor(write[0])]})
        self.cache.mark_complete_blocks(state, complete)

    def given(self, rows, layer, start, end):
        return to_torch(rows[layer:layer + 1, :, start:end], self.setup.x)

    def read(self, state):
        if not state.position_offset:
            return self.setup.no_rows()
        index = torch.tensor(self.allocator.get_read_indices(state.request_id, state.position_offset, 0))
        layers = [self.allocator._kv_token_views[layer] for layer in range(self.setup.layers)]
        return tuple(to_numpy(torch.stack([layer[part].index_select(0, index).transpose(0, 1) for layer in layers]))
                     for part in (0, 1))

    def close(self, state, keep):
        del self.live[state.request_id]
        if keep:
            self.scheduler.finish_request(state.request_id)
        else:
            self.scheduler.set_request_cancellation(state.request_id)
            self.scheduler.clear_cancelled_requests()

    def fork(self, state):
        self.opened += 1
        name = str(self.opened)
        if state.position_offset:
            self.cache.pool.try_to_free_sectors()
            copies = {kind: ([], []) for kind in self.cache.cache_allocators}
            if not self.cache.prepare_fork_request(state, [name], copies):
                raise Unsupported("no room for a copy of the last block: the scheduler computes the child from its first token")
            self.cache.perform_cache_copy(copies)
        self.live[name] = self.scheduler.active_requests[name] = state.fork(name)
        return self.live[name]

    def clear(self):
        """Only memory pressure makes it forget: evict_cached_blocks."""
        self.cache.evict_cached_blocks()
        self.cache.pool.try_to_free_sectors()

    def epoch(self):
        """A kept session that begins again: ContinuousBatchProcessor.reset, after the requests of the one before."""
        if self.live:
            raise Refused("requests are open")
        self.scheduler.reset()
        self.cache.free_all_requests()

    def observe(self):
        pool, allocator = self.cache.pool, self.allocator
        held = {block for table in allocator.block_table.values() for block in table}
        free = pool.count_free_blocks(allocator.index) + pool.num_free_sectors * allocator.blocks_per_sector
        return {"blocks_total": allocator.num_blocks, "blocks_free": free, "blocks_held": len(held),
                "blocks_cached": len(allocator.ledger.cached_blocks)}


class ForgettingCache(PagedCache):
    """The cause of FINDINGS.md repaired: a session that begins again keeps no block of the one before."""
    name, version = "transformers-paged-patched", f"{PagedCache.version}, patched"

    def epoch(self):
        super().epoch()
        self.cache.evict_cached_blocks()


def ADAPTER(*options):
    if options not in ((), ("--patched",)):
        raise SystemExit(f"transformers_paged: no option {' '.join(options)}; it has --patched")
    return ForgettingCache() if options else PagedCache()
