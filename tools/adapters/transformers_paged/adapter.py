"""The PagedAttentionCache of transformers' continuous batching before kvcheck, with the calls of its scheduler: a prefix
match where a request is added, can_store_request_tokens for each chunk (cached blocks are evicted once where there is
no room), the cache's own write and read indices, mark_complete_blocks after the forward pass, free_blocks at the end.
It has no notion of an identity."""
import copy
import importlib.metadata
from types import SimpleNamespace

import torch
from kvcheck_adapter import FULL, PrefixAdapter, Refused, Started, Unsupported
from kvcheck_adapter.torch_arrays import TYPES, to_numpy, to_torch
from transformers import ContinuousBatchingConfig, LlamaConfig
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.requests import RequestState

ALONE = SimpleNamespace(tp_size=1, are_kv_heads_tp_ed=lambda: False)


class PagedCache(PrefixAdapter):
    name = "transformers-paged"
    version = importlib.metadata.version("transformers")
    # A block may be found from the moment that it is full, kept or not.
    prefix_profile = "last=never publishes=write busy=refused"
    spaces = [{"kind": "prefix", "identity": [], "quantizes": False, "windows": False, "entries": False, "disk": False,
               "tiers": False, "all": False, "same_dims": True,
               "operations": ["open", "write", "read", "close", "fork", "clear", "epoch"]}]
    relies_on = {"shapes", "counts"}

    def start(self, setup, folder, again):
        self.setup, self.opened, self.live = setup, 0, set()
        config = LlamaConfig(num_hidden_layers=setup.layers, num_key_value_heads=setup.kv_heads,
                             num_attention_heads=setup.kv_heads, head_dim=setup.k_dim,
                             hidden_size=setup.kv_heads * setup.k_dim, vocab_size=8, attn_implementation="sdpa")
        batching = ContinuousBatchingConfig(page_size=setup.block_tokens, max_batch_tokens=64, max_memory_percent=0.5,
                                            num_blocks=setup.capacity_tokens // setup.block_tokens,
                                            max_blocks_per_request=0)
        self.cache = PagedAttentionCache(config, batching, "cpu", ALONE, dtype=TYPES[setup.x])
        (self.allocator,) = self.cache.cache_allocators.values()
        return Started(setup.block_tokens, self.cache.num_blocks * setup.block_tokens)

    def open(self, tokens, who, all):
        self.opened += 1
        state = RequestState(request_id=str(self.opened), initial_tokens=list(tokens))
        state.position_offset = self.cache.search_prefix_match(state.request_id, list(tokens))
        self.live.add(state.request_id)
        return state, state.position_offset

    def write(self, state, tokens, k, v):
        count, past = len(tokens), state.position_offset
        if not self.cache.can_store_request_tokens(state, count):
            self.cache.evict_cached_blocks()
            if not self.cache.can_store_request_tokens(state, count):
                return FULL
        known = len(state.initial_tokens) + len(state.generated_tokens)
        more = past + count - known
        if more > 0:
            state.generated_tokens += tokens[-more:]
        complete = self.cache.count_new_complete_blocks(state, count)
        write = torch.tensor(self.allocator.get_write_indices(state.request_id, past, count))
        for layer in range(self.setup.layers):
            lengths = {self.allocator.layer_type: torch.tensor([0, count])}
            self.cache.update(self.given(k, layer), self.given(v, layer), layer, {
                "cu_seq_lens_k": lengths, "max_length_k": {self.allocator.layer_type: count},
                "read_index": [torch.empty(0, dtype=torch.long)], "write_index": [write]})
        state.position_offset += count
        self.cache.mark_complete_blocks(state, complete)
        return None

    def given(self, rows, layer):
        return to_torch(rows[layer:layer + 1], self.setup.x)

    def read(self, state):
        if not state.position_offset:
            return self.setup.no_rows()
        index = torch.tensor(self.allocator.get_read_indices(state.request_id, state.position_offset, 0))
        layers = [self.allocator._kv_token_views[layer] for layer in range(self.setup.layers)]
        return tuple(to_numpy(torch.stack([layer[part].index_select(0, index).transpose(0, 1) for layer in layers]))
                     for part in (0, 1))

    def close(self, state, keep):
        self.live.discard(state.request_id)
        if state.position_offset:
            self.cache.free_blocks(state.request_id)  # as for every request that has ended

    def fork(self, state):
        self.opened += 1
        made = copy.deepcopy(state)
        made.request_id = str(self.opened)
        if state.position_offset:
            copies = {name: ([], []) for name in self.cache.cache_allocators}
            if not self.cache.prepare_fork_request(state, [made.request_id], copies):
                raise Unsupported("no room for a copy of the last block")
            self.cache.perform_cache_copy(copies)
        self.live.add(made.request_id)
        return made

    def clear(self):
        if self.live:
            raise Refused("requests are open")
        self.cache.reset()

    def epoch(self):
        self.clear()
