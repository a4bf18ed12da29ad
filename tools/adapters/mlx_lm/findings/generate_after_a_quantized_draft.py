"""mlx_lm.server with --kv-bits 8, whose caches are quantized from 8 tokens on, without and with a draft model: what it keeps
of the first prompt and its answer, and how it answers a second prompt that goes on from them."""
from mlx_lm.generate import generate_step

from _random_model import prompt
from _server import Server, mx, random_llama

wide = {"hidden_size": 128, "head_dim": 64}
model, draft = random_llama(0, **wide), random_llama(1, **wide)
first, later = prompt(12), prompt(3)
for name, drafts in (("alone", None), ("with a draft", draft)):
    with Server(model, drafts, kv_bits=8, quantized_kv_start=8) as server:
        _, made = server.complete(first, 8)
        kept = [f"{type(cache).__name__} of {cache.offset}" for cache in server.kept(first + made)]
        second = first + made + later
        _, made = server.complete(second, 8)
    print(f"{name}: {len(second) - 3} tokens are kept as {', '.join(kept)}; answered {made}")
print("without any cache:", [t for t, _ in generate_step(mx.array(second), model, max_tokens=8)])
