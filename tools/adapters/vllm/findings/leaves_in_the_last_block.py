"""A prompt that leaves an earlier one in its last whole block finds nothing, where layers have a sliding window."""
import os

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")

import torch
from vllm.config import CacheConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.request import Request

BLOCK, WINDOW = 16, 64
init_none_hash(sha256)


def found(shared, prompt=130, retention=CacheConfig().prefix_cache_retention_interval):
    """Tokens that a prompt of 130 finds, which has so many in common with one of before."""
    shape = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float16}
    groups = [KVCacheGroupSpec(["full"], FullAttentionSpec(**shape)),
              KVCacheGroupSpec(["window"], SlidingWindowSpec(**shape, sliding_window=WINDOW))]
    manager = KVCacheManager(
        KVCacheConfig(num_blocks=1000, kv_cache_tensors=[], kv_cache_groups=groups, prefix_cache_retention_interval=retention),
        max_model_len=4096, scheduler_block_size=BLOCK, hash_block_size=BLOCK)

    def request(name, tokens):
        return Request(request_id=name, prompt_token_ids=tokens, sampling_params=SamplingParams(max_tokens=8),
                       pooling_params=None, block_hasher=get_request_block_hasher(BLOCK, sha256))

    first = request("first", list(range(prompt)))
    manager.get_computed_blocks(first)
    manager.allocate_slots(first, prompt)
    first.num_computed_tokens = prompt
    manager.free(first)
    other = request("other", list(range(shared)) + [5000 + i for i in range(prompt - shared)])
    return manager.get_computed_blocks(other)[1]


print("in common, found:", *(f"{shared}: {found(shared)}" for shared in (129, 128, 127, 112)), sep="  ")
print("with every block retained:", *(f"{shared}: {found(shared, retention=None)}" for shared in (129, 128, 127, 112)), sep="  ")
