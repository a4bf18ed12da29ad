"""mlx_lm.server: a client asks to go on from an answer that max_tokens ended, by the prompt and that answer; then for
something else."""
import os
import sys

from _random_model import prompt
from _server import Server, random_llama

first = prompt(12)
for name, options in (("in batches", {}), ("one by one (--kv-bits 8)", {"kv_bits": 8})):
    with Server(random_llama(0), **options) as server:
        _, made = server.complete(first, 8)
        print(f"{name}: {len(made)} tokens are answered")
        for asked in (first + made, first):
            try:
                print(f"  a prompt of {len(asked)}: {len(server.complete(asked, 8)[1])} tokens are answered")
            except Exception as error:
                print(f"  a prompt of {len(asked)}: {type(error).__name__}: {error}")
sys.stdout.flush()
os._exit(0)  # a thread that died leaves one of MLX behind, and a usual end aborts
