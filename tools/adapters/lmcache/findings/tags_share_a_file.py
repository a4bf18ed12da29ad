"""Two adapters that a tag keeps apart, whose names differ in a slash."""
import tempfile

from _engine import end, make_engine, retrieve, store

PROMPT = list(range(8))

with tempfile.TemporaryDirectory() as folder:
    engine = make_engine(folder, local_cpu=False)
    store(engine, PROMPT, 1, adapter="team/legal")
    store(engine, PROMPT, 2, adapter="team-legal")
    for adapter, own in (("team/legal", 1), ("team-legal", 2)):
        found, rows = retrieve(engine, PROMPT, adapter=adapter)
        print(f"{adapter} stored {own} and is given {rows.unique().tolist()} for {found} tokens")
    end()
