"""The cache is reset, as after new weights; the same block is asked for again."""
import tempfile

from _tiers import Tiers, key

with tempfile.TemporaryDirectory() as folder:
    tiers = Tiers(folder, 4)
    first = tiers.request()
    tiers.store(key(0), 1, first)
    tiers.manager.on_request_finished(first)
    tiers.step()
    tiers.manager.reset_cache()
    tiers.manager.on_reset_flushed()
    again = tiers.request()
    hits, _ = tiers.lookup([key(0)], again, most_steps=200)
    print(f"after the reset {hits} block is found" + (f", and holds {tiers.load(key(0), again)}" if hits else ""))
    tiers.end()
