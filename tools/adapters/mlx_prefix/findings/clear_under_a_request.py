"""mlx-vlm: a clear while a request holds blocks, and what the pool can keep from then on."""
import os

os.environ.update(APC_DISK_MIN_FREE_RAM_GB="0", APC_MEMORY_RESERVE_GB="0", APC_HASH="sha256")

import mlx.core as mx
from mlx_vlm.apc import APCManager

BLOCK = 16


def store(manager, tokens):
    rows = mx.zeros((1, 1, len(tokens), 64))
    manager.release(manager.store_kv_blocks(tokens, [rows], [rows]))


def found(manager, tokens):
    blocks, hit = manager.lookup_prefix(tokens)
    manager.release(blocks)
    return hit


first, second = list(range(4 * BLOCK)), list(range(100, 100 + 4 * BLOCK))
for holds in (False, True):
    manager = APCManager(num_blocks=4, block_size=BLOCK)
    store(manager, first)
    held = manager.lookup_prefix(first[:2 * BLOCK])[0] if holds else []
    manager.clear()
    manager.release(held)
    store(manager, second)
    print(f"{len(held)} blocks held in the clear: {found(manager, second)} of {len(second)} tokens are kept in 4 blocks")
