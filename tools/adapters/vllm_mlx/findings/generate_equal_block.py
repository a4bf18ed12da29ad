"""vllm-mlx's scheduler with its paged cache: a prompt whose first block another prompt has further back."""
from _scheduler import generate, random_model, scheduler

PAGED = {"use_paged_cache": True, "paged_cache_block_size": 4, "max_cache_blocks": 32}

model = random_model()
first = [1, 2, 3, 4, 5, 6, 7, 8, 9]
second = [5, 6, 7, 8, 20, 21]  # begins with the second block of the first prompt
alone = generate(scheduler(model, **PAGED), "alone", second)
shared = scheduler(model, **PAGED)
generate(shared, "first", first)
after = generate(shared, "second", second)
print(f"alone      {alone[0]} tokens from the cache, generates {alone[1]}")
print(f"after one  {after[0]} tokens from the cache, generates {after[1]}")
