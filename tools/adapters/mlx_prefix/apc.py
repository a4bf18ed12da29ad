"""mlx-vlm's APCManager and its DiskBlockStore, made as its server makes them (server/app.py) and with the calls of its
generators: apc_lookup_plan, the rest of the prompt through the caches, commit_prefix_blocks; clear is the server's
/v1/cache/reset, which waits for nobody. The disk's writer is waited for by flush, and closed at the end."""
import atexit
import importlib.metadata
import os

# Nothing may depend on how much memory this machine has.
os.environ.update(APC_DISK_MIN_FREE_RAM_GB="0", APC_MEMORY_RESERVE_GB="0")

from kvcheck_adapter import PrefixAdapter, Started, Unsupported
from prompts import Prompt

from mlx_vlm.apc import (APCManager, DiskBlockStore, apc_disk_namespace, apc_lookup_plan, commit_prefix_blocks,
                         make_warm_kv_cache, tenant_scoped_hash)


class ApcStore(PrefixAdapter):
    name = "mlx-vlm-apc"
    version = importlib.metadata.version("mlx-vlm")
    # One token is left to compute; files have no checksum; "eviction is LRU" (apc.py). Of an identity a tenant is all that a
    # hash has a place for: what an adapter is, is part of the namespace of files, which is chosen at the start.
    prefix_profile = "last=never flips=served evict=lru"
    COMMON = {"kind": "prefix", "identity": ["salt"], "quantizes": False, "windows": False, "entries": False, "all": False}
    OPERATIONS = ["open", "write", "read", "close", "settle"]
    spaces = [{**COMMON, "disk": False, "tiers": False, "operations": [*OPERATIONS, "clear", "observe"]},
              {**COMMON, "operations": [*OPERATIONS, "observe", "restart", "damage"]}]
    relies_on = {"shapes", "counts"}

    def __init__(self):
        self.store = None
        atexit.register(self.end)

    def end(self):
        if self.store is not None:
            self.store.close()

    def start(self, setup, folder, again):
        self.end()
        self.setup = setup
        # Its server names the path of the model and of the adapter, and how K and V are quantized: nothing of the weights.
        disk = DiskBlockStore(folder, apc_disk_namespace("model", weights_fingerprint=self.weights())) if folder else None
        blocks = setup.capacity_tokens // setup.block_tokens
        self.store = APCManager(num_blocks=blocks, block_size=setup.block_tokens, disk=disk)
        return Started(setup.block_tokens, blocks * setup.block_tokens)  # what a request has found is pinned in the pool

    def weights(self):
        """What its server says of them. Vectors of another type are those of other weights."""
        return None

    def extra_hash(self, who):
        if who.salt == "":
            raise Unsupported("an empty tenant is none")
        return tenant_scoped_hash(who.salt)

    def open(self, tokens, who, all):
        plan = apc_lookup_plan(self.store, tokens, extra_hash=self.extra_hash(who), apc_mode="block", safe_lookup_min=0,
                               suffix_is_text_only=lambda prefix: True, prefix_has_media=lambda prefix: False)
        request = Prompt(self.setup, who, [])
        request.blocks, request.skip = [], 0
        if plan is None:
            return request, 0
        hit, request.blocks = plan["prefix_len"], plan["matched_blocks"]
        request.caches = make_warm_kv_cache(request.blocks) if request.blocks else plan["warm_cache"]
        request.tokens, request.skip = tokens[:hit], hit
        return request, hit, "memory" if request.blocks else "disk"

    def close(self, request, keep):
        if keep and request.tokens:
            commit_prefix_blocks(self.store, request.caches, request.tokens, extra_hash=self.extra_hash(request.who),
                                 skip_first_n_tokens=len(request.blocks) * self.setup.block_tokens,
                                 blocks_in_use=request.blocks)
        else:
            self.store.release(request.blocks)

    def clear(self):
        self.store.clear()

    def settle(self):
        if self.store.disk is not None:
            self.store.disk.flush()

    def observe(self):
        pool = self.store.pool
        held = sum(block.ref_cnt > 0 for block in pool)
        cached = sum(block.ref_cnt == 0 and block.block_hash is not None for block in pool)
        return {"blocks_total": len(pool), "blocks_free": len(pool) - held - cached, "blocks_cached": cached,
                "blocks_held": held}


STORE = ApcStore


def repair():
    """A hit of files leaves one token, as one of memory does; clear leaves what a request holds as it is; the namespace of files
    says which weights they are of."""
    lookup = APCManager.lookup_prefix_disk_cache

    def lookup_all_but_last(self, token_ids, **options):
        return lookup(self, token_ids[:-1], **options)

    def clear_idle(self):
        for block in self.pool:
            if block.ref_cnt == 0 and block.block_hash is not None:
                del self.hash_table[block.block_hash]
                block.block_hash, block.token_ids = None, ()
                block.release_components()
        self._exact_cache.clear()
    APCManager.lookup_prefix_disk_cache, APCManager.clear = lookup_all_but_last, clear_idle
    ApcStore.weights = lambda self: self.setup.x
