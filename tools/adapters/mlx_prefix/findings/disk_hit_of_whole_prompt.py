"""mlx-vlm: after a restart, a prompt of whole blocks that is all on disk is a miss."""
import os
import tempfile

os.environ.update(APC_DISK_MIN_FREE_RAM_GB="0", APC_MEMORY_RESERVE_GB="0", APC_HASH="sha256", APC_EXACT_MIN_TOKENS="1")

import mlx.core as mx
from mlx_vlm.apc import APCManager, DiskBlockStore, apc_lookup_plan

BLOCK = 16


def found(manager, tokens):
    plan = apc_lookup_plan(manager, tokens, extra_hash=0, apc_mode="block", safe_lookup_min=0,
                           suffix_is_text_only=lambda prefix: True, prefix_has_media=lambda prefix: False)
    if plan is None:
        return 0
    manager.release(plan["matched_blocks"])
    return plan["prefix_len"]


with tempfile.TemporaryDirectory() as folder:
    first = APCManager(num_blocks=64, block_size=BLOCK, disk=DiskBlockStore(folder, "model"))
    prompt = list(range(4 * BLOCK))
    rows = mx.zeros((1, 1, len(prompt), 64))
    first.release(first.store_kv_blocks(prompt, [rows], [rows]))
    print(f"in memory: {found(first, prompt)} of {len(prompt)} tokens")
    first.close()
    second = APCManager(num_blocks=64, block_size=BLOCK, disk=DiskBlockStore(folder, "model"))
    for tokens in (prompt[:-1], prompt, prompt + [9]):
        print(f"after a restart: {found(second, tokens)} of {len(tokens)} tokens")
    second.close()
