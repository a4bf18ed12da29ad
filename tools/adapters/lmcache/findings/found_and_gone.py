"""A request finds half of its prompt, which goes before the request ends; the rest is stored with a mask over what was found,
as the connector for vLLM does."""
from _engine import end, make_engine, store

PROMPT = list(range(16))

engine = make_engine(None, local_cpu=True)
store(engine, PROMPT[:8], 1)
found = engine.lookup(PROMPT)
engine.clear()
store(engine, PROMPT, 1, first=found)
kept = len(engine.storage_manager.storage_backends["LocalCPUBackend"].hot_cache)
print(f"{found} of 16 tokens had been found; {kept} chunks are kept, and {engine.lookup(PROMPT)} tokens are found")
end()
