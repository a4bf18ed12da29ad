"""vLLM's TieringOffloadingManager over files, as its spec makes it, with chunks of one page. Nothing of kvcheck."""
import os
import time
from types import SimpleNamespace

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")

import numpy as np
from vllm.v1.kv_offload.base import (LookupResult, OffloadingKVEventsConfig, OffloadKey, ReqContext, ScheduleEndContext,
                                     make_offload_key)
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig,
                                       OffloadingModelConfig, OffloadingParallelConfig)
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager, TieringOffloadingManager

PAGE = 4096


class Tiers:
    """Memory of so many chunks over a folder of files."""

    def __init__(self, folder, chunks):
        region = SharedOffloadRegion(f"finding_{os.getpid()}_{time.monotonic_ns()}", chunks, 0, PAGE, PAGE,
                                     barrier=lambda: None)
        self.memory = np.frombuffer(region.mmap_obj, np.uint8).reshape(chunks, PAGE)
        primary = CPUPrimaryTierOffloadingManager(chunks, region)
        config = OffloadingConfig(
            groups=(OffloadingGroupConfig(16, ("layer",), 0),), worker_kv_bytes_per_block=PAGE, enable_kv_cache_events=False,
            extra_config={}, engine_id="engine", model=OffloadingModelConfig("model", "float16"),
            cache=OffloadingCacheConfig(16, 1), parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True))
        spec = SimpleNamespace(config=config, blocks_per_chunk=1, kv_events_config=OffloadingKVEventsConfig(False, False))
        self.files = FileSystemTierManager(spec, primary.get_kv_memoryview(), "fs", folder, 1, 1)
        self.manager = TieringOffloadingManager(primary, [self.files])
        self.requests = 0

    def step(self):
        """The end of a step of the scheduler, and as long as transfers and lookups of files take."""
        self.manager.on_schedule_end(ScheduleEndContext((), ()))
        self.files.drain_jobs()
        time.sleep(0.01)

    def request(self):
        self.requests += 1
        context = ReqContext(str(self.requests))
        self.manager.on_new_request(context)
        return context

    def store(self, key, value, context):
        output = self.manager.prepare_store([key], context)
        self.memory[output.store_spec.chunk_ids[0]] = value
        self.manager.complete_store(output.keys_to_store, context)
        self.step()

    def lookup(self, keys, context, most_steps):
        """(hits, steps): as the connector's scheduler asks, again after each step while anything is pending; hits None: it
        still is."""
        for steps in range(most_steps):
            hits, pending = 0, False
            for key in keys:
                result = self.manager.lookup(key, context)
                if result is LookupResult.MISS:
                    break
                pending |= result is not LookupResult.HIT
                hits += result is not LookupResult.RETRY
            if not pending:
                return hits, steps
            self.step()
        return None, most_steps

    def load(self, key, context):
        (chunk,) = self.manager.prepare_load([key], context).chunk_ids
        value = int(self.memory[chunk][0])
        self.manager.complete_load([key], context)
        return value

    def end(self):
        self.step()
        self.memory = None
        self.manager.shutdown()


def key(number) -> OffloadKey:
    return make_offload_key(number.to_bytes(32, "big"), 0)
