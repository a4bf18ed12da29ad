"""clear, which says how many tokens it has cleared, with memory alone and with a disk beside it."""
import tempfile

from _engine import end, make_engine, retrieve, store

PROMPT = list(range(8))

for local_cpu in (True, False):
    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(folder, local_cpu=local_cpu)
        store(engine, PROMPT, 1)
        cleared = engine.clear()
        found, _ = retrieve(engine, PROMPT)
        print(f"{'memory and disk' if local_cpu else 'disk'}: {cleared} tokens cleared, {found} of 8 are found afterwards")
        end()
