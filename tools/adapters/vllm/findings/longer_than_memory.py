"""A prompt whose blocks are all in files, and more of them than memory has room for."""
import tempfile

from _tiers import Tiers, key

CHUNKS = 4

for blocks in (3, 4, 5):
    with tempfile.TemporaryDirectory() as folder:
        tiers = Tiers(folder, CHUNKS)
        first = tiers.request()
        for number in range(blocks):
            tiers.store(key(number), number + 1, first)
        tiers.manager.on_request_finished(first)
        tiers.step()
        hits, steps = tiers.lookup([key(number) for number in range(blocks)], tiers.request(), most_steps=200)
        found = f"{hits} blocks are found" if hits is not None else f"after {steps} steps the request still waits"
        print(f"memory of {CHUNKS} blocks, prompt of {blocks}: {found}")
        tiers.end()
