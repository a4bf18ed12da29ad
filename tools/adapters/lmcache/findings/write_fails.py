"""LMCache with a disk of two chunks, on which a write fails once: no file may grow, which is what a full disk is to it."""
import resource
import signal
import tempfile
import time

import torch
from _engine import CHANNELS, CHUNK, CHUNK_BYTES, disk, end, make_engine

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
PROMPT = list(range(CHUNK))


def store_and_wait(engine):
    engine.store(PROMPT, mask=torch.ones(CHUNK, dtype=torch.bool), source=torch.ones((2, 1, CHUNK, CHANNELS)))
    deadline = time.monotonic() + 5
    while disk(engine).disk_worker.put_tasks and time.monotonic() < deadline:
        time.sleep(0.01)


with tempfile.TemporaryDirectory() as folder:
    engine = make_engine(folder, local_cpu=False, disk_chunks=2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    store_and_wait(engine)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(f"a write failed: {len(disk(engine).dict)} chunks are on disk, {disk(engine).current_cache_size / CHUNK_BYTES:.0f} of 2 count, "
          f"{len(disk(engine).disk_worker.put_tasks)} write is pending")
    store_and_wait(engine)
    print(f"stored again, with room: {engine.lookup(PROMPT)} of {CHUNK} tokens are found")
    end()
