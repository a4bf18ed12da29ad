"""An LMCacheEngine of its own in each program: chunks of 4 tokens, a layer of one head of 64 channels, and arrays in place of
the paged cache of a GPU. Nothing of kvcheck."""
import logging
import os

os.environ.update(LMCACHE_TRACK_USAGE="false", LMCACHE_LOG_LEVEL="ERROR", PYTHONHASHSEED="0")
logging.disable(logging.CRITICAL)

import time

import torch
from lmcache.v1.cache_engine import LMCacheEngineBuilder
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.gpu_connector import MockGPUConnector
from lmcache.v1.metadata import LMCacheMetadata

CHUNK, CHANNELS = 4, 64
CHUNK_BYTES = 4096  # what its allocator gives one
SHAPE = (1, 2, CHUNK, 1, CHANNELS)


class Arrays(MockGPUConnector):
    def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
        for made, start, end in zip(memory_objs, starts, ends):
            made.tensor.copy_(kwargs["source"][:, :, start:end])

    def batched_to_gpu(self, memory_objs, starts, ends, **kwargs):
        for made, start, end in zip(memory_objs, starts, ends):
            kwargs["target"][:, :, start:end] = made.tensor


def make_engine(folder, local_cpu, memory_chunks=64, disk_chunks=64):
    """folder: None for no disk."""
    disk = {"local_disk": folder + "/", "max_local_disk_size": disk_chunks * CHUNK_BYTES / 2**30} if folder else {}
    config = LMCacheEngineConfig.from_defaults(chunk_size=CHUNK, local_cpu=local_cpu,
                                               max_local_cpu_size=memory_chunks * CHUNK_BYTES / 2**30, **disk)
    metadata = LMCacheMetadata("model", 1, 1, 0, 0, torch.float32, SHAPE, chunk_size=CHUNK)
    engine = LMCacheEngineBuilder.get_or_create("engine", config, metadata, Arrays(SHAPE), lambda tensor, source: None,
                                                lambda sent, source: sent)
    engine.post_init()
    return engine


def end():
    LMCacheEngineBuilder.destroy("engine")


def tagged(**tags):
    return {"request_configs": {f"lmcache.tag.{name}": text for name, text in tags.items()}}


def store(engine, tokens, value, first=0, **tags):
    """K and V of which every element is the value; the first tokens are there already."""
    mask = torch.ones(len(tokens), dtype=torch.bool)
    mask[:first] = False
    engine.store(tokens, mask=mask, source=torch.full((2, 1, len(tokens), CHANNELS), float(value)), **tagged(**tags))
    backends = engine.storage_manager.storage_backends
    while "LocalDiskBackend" in backends and backends["LocalDiskBackend"].disk_worker.put_tasks:
        time.sleep(0.001)


def retrieve(engine, tokens, **tags):
    """(tokens that were found, their K and V)."""
    target = torch.zeros((2, 1, len(tokens), CHANNELS))
    found = int(engine.retrieve(tokens, target=target, **tagged(**tags)).sum())
    return found, target[:, :, :found]


def disk(engine):
    return engine.storage_manager.storage_backends["LocalDiskBackend"]
