"""vLLM's requests, as in its unit tests: what a prompt and an identity are to it."""
import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

from kvcheck_adapter import Unsupported
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request as EngineRequest

LONGEST = 1 << 20
# An adapter's versions stand under paths of their own. A model has a manager of its own.
IDENTITY = ["salt", "adapter", "version", "image"]


class EngineRequests:
    """Makes the requests of one store."""

    def __init__(self, block_tokens):
        init_none_hash(sha256)
        self.hasher, self.adapters, self.made = get_request_block_hasher(block_tokens, sha256), {}, 0

    def request(self, tokens, who):
        if who.salt == "":
            raise Unsupported("an empty salt, which vLLM's server refuses")
        lora = None
        if who.adapter is not None:
            number = self.adapters.setdefault(who.adapter, len(self.adapters) + 1)
            lora = LoRARequest(who.adapter, number, f"/adapters/{number}/{who.version}")
        features = []
        if who.image is not None:
            features = [MultiModalFeatureSpec(data=None, modality="image", identifier=who.image,
                                              mm_position=PlaceholderRange(offset=0, length=1))]
        self.made += 1
        return EngineRequest(request_id=str(self.made), prompt_token_ids=list(tokens),
                             sampling_params=SamplingParams(max_tokens=LONGEST), pooling_params=None,
                             mm_features=features, lora_request=lora, cache_salt=who.salt, block_hasher=self.hasher)
