"""The caches of device and host are reset, as flush_cache does after new weights; the page is asked for again."""
import tempfile
from types import SimpleNamespace

from _files import KEY, files, page
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
import torch

with tempfile.TemporaryDirectory() as folder:
    store = files(folder)
    store.set(KEY, page(1))
    cache = UnifiedRadixCache(CacheInitParams(
        disable=False, req_to_token_pool=ReqToTokenPool(1, 8, "cpu", False), page_size=1,
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(8, torch.float32, "cpu", None, False),
        tree_components=(ComponentType.FULL,)))
    # The controller needs a GPU: of it there is what `reset` asks for.
    cache.cache_controller = SimpleNamespace(reset=lambda: None, mem_pool_host=SimpleNamespace(clear=lambda: None),
                                             enable_storage=True, storage_backend=store)
    cache.reset()
    print(f"after the reset exists says {store.exists(KEY)}, and the page holds {store.get(KEY, page(0)).tolist()[0]}")
