"""mlx_lm.server with a draft model: a conversation's second prompt begins with the first one and its answer, and should be
answered as by the model alone."""
from mlx_lm.generate import generate_step

from _random_model import prompt
from _server import Server, mx, random_llama

model, draft = random_llama(0), random_llama(1)
first, later = prompt(12), prompt(3)
for length in (6, 8):
    with Server(model, draft) as server:
        _, made = server.complete(first, length)
        kept = server.kept(first + made)
        second = first + made + later
        found, made = server.complete(second, 8)
    print(f"{len(second) - 3} tokens are kept as {kept[0].offset}, {found} of {len(second)} are found")
    print("  answered       ", made)
    print("  the model alone", [t for t, _ in generate_step(mx.array(second), model, max_tokens=8)])
