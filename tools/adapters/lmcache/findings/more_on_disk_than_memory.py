"""A prompt is stored in two turns, each of which fits into memory; all of it is on disk."""
import os
import tempfile
import threading

from _engine import disk, make_engine, retrieve, store

PROMPT = list(range(16))

with tempfile.TemporaryDirectory() as folder:
    engine = make_engine(folder, local_cpu=True, memory_chunks=2, disk_chunks=8)
    store(engine, PROMPT[:8], 1)
    store(engine, PROMPT, 1, first=8)
    print(f"on disk: {len(disk(engine).dict)} chunks; in memory there is room for 2; lookup: {engine.lookup(PROMPT)} tokens")
    asked = threading.Thread(target=retrieve, args=(engine, PROMPT), daemon=True)
    asked.start()
    asked.join(20)
    print("retrieve has not come back after 20 s" if asked.is_alive() else "retrieve has come back")
    os._exit(0)  # it never will
