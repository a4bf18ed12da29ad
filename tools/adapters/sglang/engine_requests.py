"""SGLang's requests with the calls of its scheduler, without a model: init_next_round_input and a lock where a request is
admitted; alloc_paged_token_slots_extend (alloc_token_slots for pages of one token) and checkpoint_kv_cache for each chunk
of the prompt; alloc_paged_token_slots_decode for each generated token; release_kv_cache at the end.
"""
import os
from array import array

os.environ.setdefault("SGLANG_SWA_EVICTION_INTERVAL", "1")  # 128 otherwise: longer than any history

import torch
from kvcheck_adapter import FULL, Unsupported, whole_blocks
from sglang.srt.lora.lora_registry import LoRARef
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req
from sglang.srt.mem_cache.allocation import (alloc_paged_token_slots_decode, alloc_paged_token_slots_extend,
                                             alloc_token_slots)
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

# A model has a cache of its own; an image is tokens of the prompt.
IDENTITY = ["salt", "adapter", "version"]
LONGEST = 1 << 20


def lora_id(who):
    """As --lora-paths gives it: of the name and of the path, where versions stand apart."""
    return None if who.adapter is None else LoRARef.deterministic_id(who.adapter, f"/adapters/{who.version}")


def lengths(*numbers):
    return torch.tensor(numbers, dtype=torch.int64)


class EngineRequests:
    """Makes and runs the requests of one cache."""

    def __init__(self, cache):
        self.cache, self.pool = cache, cache.req_to_token_pool
        self.made, self.live = 0, []

    def open(self, tokens, who):
        """The request; the first `prefix_len` tokens are there, and locked."""
        if who.salt == "":
            raise Unsupported("an empty salt, which is none to SGLang")
        self.made += 1
        req = Req(str(self.made), "", array("q", tokens), SamplingParams(max_new_tokens=LONGEST), lora_id=lora_id(who),
                  cache_salt=who.salt)
        req.init_next_round_input(self.cache)
        req.lock = self.cache.lock(req.last_node)
        self.live.append(req)
        return req

    def tokens(self, req):
        """How many of them have K and V."""
        return req.kv.kv_committed_len if req.kv.holds_kv else req.prefix_len

    def slots(self, req):
        """Of all its tokens."""
        if not req.kv.holds_kv:
            return self.cache.prefix_device_indices(req).to(torch.int64)
        return self.pool.req_to_token[req.kv.req_pool_idx, :self.tokens(req)].to(torch.int64)

    def write(self, req, tokens, store):
        """FULL where there is no room. store(start, slots): K and V of so many of the tokens, from the start-th on."""
        has, page = self.tokens(req), self.cache.page_size
        pages = whole_blocks(has + len(tokens), page) - whole_blocks(has, page)
        if pages * page > self.room():
            return FULL
        in_prompt = min(len(tokens), len(req.origin_input_ids) - has)
        if in_prompt > 0:
            slots = self.extend(req, has, has + in_prompt)
            store(0, slots)
            checkpoint_kv_cache(req, self.cache)
        for index in range(max(0, in_prompt), len(tokens)):
            req.output_ids.append(tokens[index])
            store(index, self.decode(req))
        return None

    def room(self):
        """Tokens that find room, as PrefillBudget counts: of each pool what is free and what may be evicted."""
        allocator = self.cache.token_to_kv_pool_allocator
        if not self.cache.supports_swa():
            return allocator.available_size() + self.cache.evictable_size()
        return min(allocator.full_available_size() + self.cache.full_evictable_size(),
                   allocator.swa_available_size() + self.cache.swa_evictable_size())

    def extend(self, req, start, end):
        """As prepare_for_extend and alloc_for_extend have it for a batch of one."""
        prefix = self.slots(req)
        req.extend_end = end
        (row,) = self.pool.alloc([req])
        if self.cache.page_size == 1:
            slots = alloc_token_slots(self.cache, end - start)
        else:
            last = prefix[-1:] if start else lengths(-1)
            slots = alloc_paged_token_slots_extend(self.cache, lengths(start), lengths(start), lengths(end), lengths(end),
                                                   last, end - start)
        self.pool.write((row, slice(0, start)), prefix.to(torch.int32))
        self.pool.write((row, slice(start, end)), slots.to(torch.int32))
        req.kv.kv_allocated_len = req.kv.kv_committed_len = end
        return slots

    def decode(self, req):
        """As prepare_for_decode and alloc_for_decode have it: the token that was generated last."""
        has, row = self.tokens(req), req.kv.req_pool_idx
        if self.cache.supports_swa() and req.decode_batch_idx >= 1:
            self.cache.evict_sliding_windows(req, req.seqlen - 1)
        req.decode_batch_idx += 1
        if self.cache.page_size == 1:
            slots = alloc_token_slots(self.cache, 1)
        else:
            last = self.pool.req_to_token[row, has - 1:has]
            slots = alloc_paged_token_slots_decode(self.cache, lengths(has + 1), lengths(has + 1), last)
        self.pool.write((row, slice(has, has + 1)), slots.to(torch.int32))
        req.kv.kv_allocated_len += 1
        req.kv.kv_committed_len += 1
        return slots

    def close(self, req, keep):
        self.live.remove(req)
        if req.kv.holds_kv:
            req.finished_reason = FINISH_LENGTH(len(req.output_ids))
            release_kv_cache(req, self.cache, checkpoint=keep)
        else:  # it never ran: nothing was allocated
            self.cache.unlock(req.lock)
            req.lock = None

    def own_tokens(self, req, evicted=0):
        """Tokens in whole pages that are the request's and not the tree's."""
        if not req.kv.holds_kv:
            return 0
        page = self.cache.page_size
        return whole_blocks(req.kv.kv_allocated_len, page) * page - max(req.kv.cache_protected_len, evicted)


# What its requests and allocators ask of a server's options.
set_global_server_args_for_scheduler(ServerArgs(model_path="dummy", device="cpu"))
