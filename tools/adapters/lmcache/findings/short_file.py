"""A file of a chunk is cut to its half, as a full disk leaves it; another prompt has just been read into the same memory."""
import os
import pathlib
import tempfile

from _engine import end, make_engine, retrieve, store

FIRST, SECOND = [1, 2, 3, 4], [5, 6, 7, 8]

with tempfile.TemporaryDirectory() as folder:
    engine = make_engine(folder, local_cpu=False, memory_chunks=1)
    store(engine, FIRST, 1)
    (file,) = pathlib.Path(folder).glob("*.pt")
    os.truncate(file, file.stat().st_size // 2)
    store(engine, SECOND, 2)
    retrieve(engine, SECOND)
    found, rows = retrieve(engine, FIRST)
    print(f"{found} of 4 tokens are found: K is {rows[0].unique().tolist()}, V is {rows[1].unique().tolist()}; stored were 1 and 1")
    end()
