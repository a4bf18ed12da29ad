"""A prompt of three chunks on disk is prefetched (enable_async_loading) where memory has room for two."""
import asyncio
import os
import sys
import tempfile
import threading

from _engine import CHUNK, disk, make_engine, store

PROMPT = list(range(3 * CHUNK))

with tempfile.TemporaryDirectory() as folder:
    engine = make_engine(folder, local_cpu=False, memory_chunks=2)
    for start in range(0, len(PROMPT), CHUNK):  # one by one, through memory
        store(engine, PROMPT[:start + CHUNK], 1 + start // CHUNK, first=start)
    backend = disk(engine)
    keys = [key for _, _, key in engine.token_database.process_tokens(tokens=PROMPT)]
    loading = asyncio.run_coroutine_threadsafe(backend.batched_get_non_blocking("request", keys), backend.loop)
    loaded = loading.result(20)
    right = sum(bool((made.tensor == 1 + index).all()) for index, made in enumerate(loaded))
    print(f"{len(backend.dict)} chunks are on disk; {len(loaded)} are given as loaded, {right} of them with what was stored")
    asked = threading.Thread(target=backend.contains, args=(keys[0],), daemon=True)
    asked.start()
    asked.join(5)
    print("the disk is asked again:", "no answer after 5 s" if asked.is_alive() else "it answers", flush=True)
sys.stdout.flush()
os._exit(0)  # an end in order waits for the lock, too
