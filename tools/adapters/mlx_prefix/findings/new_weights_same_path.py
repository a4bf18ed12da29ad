"""mlx-vlm's APCManager over the folder of a server that ran before, with other weights under the same path."""
import os
import tempfile

os.environ.update(APC_DISK_MIN_FREE_RAM_GB="0", APC_MEMORY_RESERVE_GB="0")

import mlx.core as mx
from mlx_lm.models.cache import KVCache
from mlx_vlm.apc import (APCManager, DiskBlockStore, apc_disk_namespace, apc_lookup_plan, commit_prefix_blocks)

tokens = list(range(33))


def server(folder):
    """As server/app.py makes it for the model in /models/mine."""
    namespace = apc_disk_namespace("/models/mine", adapter_path=None, kv_bits=None, kv_key_bits=None, kv_value_bits=None,
                                   kv_group_size=64, kv_quant_scheme="uniform", quantized_kv_start=0)
    return APCManager(num_blocks=8, block_size=16, disk=DiskBlockStore(folder, namespace))


with tempfile.TemporaryDirectory() as folder:
    before = server(folder)
    cache, rows = KVCache(), mx.ones((1, 1, len(tokens), 8))  # of the weights of before
    cache.update_and_fetch(rows, rows)
    commit_prefix_blocks(before, [cache], tokens, extra_hash=0, skip_first_n_tokens=0, blocks_in_use=[])
    before.disk.flush()
    before.close()
    after = server(folder)
    plan = apc_lookup_plan(after, tokens, extra_hash=0, apc_mode="block", safe_lookup_min=0,
                           suffix_is_text_only=lambda prefix: True, prefix_has_media=lambda prefix: False)
    shown = plan["warm_cache"][0].keys[0, 0, 0, 0].item()
    print(f"after the restart {plan['prefix_len']} of {len(tokens)} tokens are found; K of the first is {shown}, of the old weights")
    after.close()
