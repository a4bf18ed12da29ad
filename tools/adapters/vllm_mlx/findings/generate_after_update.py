"""vllm-mlx, stopped and started again as its server does it, with other weights of the same model in between."""
import tempfile

from _scheduler import generate, random_model, scheduler

CACHE = {"cache_memory_mb": 100}

prompt = [token % 64 for token in range(150)]  # its shortest prefix is of 128 tokens
with tempfile.TemporaryDirectory() as folder:
    before = scheduler(random_model(1), **CACHE)
    generate(before, "before", prompt)
    before.save_cache_to_disk(folder)
    updated = random_model(2)
    after = scheduler(updated, **CACHE)
    print(f"revision of the model: {after.memory_aware_cache._model_revision}; {after.load_cache_from_disk(folder)} entry is loaded")
    longer = prompt + generate(scheduler(random_model(1), **CACHE), "again", prompt)[1] + [7, 9]
    print("without files  %d tokens from the cache, generates %s" % generate(scheduler(updated, **CACHE), "alone", longer))
    print("with files   %d tokens from the cache, generates %s" % generate(after, "after", longer))
