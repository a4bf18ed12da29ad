"""HiCacheFile as SGLang's controller makes it, with pages of one value. Nothing of kvcheck."""
import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig

KEY = "0" * 64


def files(folder, model="model"):
    return HiCacheFile(HiCacheStorageConfig(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                                            is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=False,
                                            model_name=model), folder)


def page(value, dtype=torch.bfloat16):
    return torch.full((8,), value, dtype=dtype)
