"""clear of a prompt by its tokens, over and over, with a disk of four chunks."""
import tempfile

from _engine import disk, end, make_engine, retrieve, store

PROMPT = list(range(8))

with tempfile.TemporaryDirectory() as folder:
    engine = make_engine(folder, local_cpu=False, disk_chunks=4)
    for round_ in range(3):
        store(engine, PROMPT, 1)
        found, _ = retrieve(engine, PROMPT)
        engine.clear(tokens=PROMPT)
        print(f"round {round_}: {found} of 8 tokens were on disk; after clear(tokens) {disk(engine).current_cache_size / 4096:.0f} "
              "of 4 chunks are counted")
    end()
