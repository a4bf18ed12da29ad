"""Two prompts in segments, as mlx_lm.server inserts them, on layers with a window of 8; each should give what it gives
alone. The second segments have one token, which rotates the rings, and the third have four."""
import mlx.core as mx
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.models import llama

from _random_model import SIZES, filled, prompt

mx.set_default_device(mx.cpu)
layers = ["sliding_attention", "sliding_attention", "full_attention"]
model = filled(llama.Model(llama.ModelArgs(num_hidden_layers=3, tie_word_embeddings=False, layer_types=layers,
                                           sliding_window=8, **SIZES)), seed=2)
prompts = [[prompt(n) for n in sizes] for sizes in ((3, 1, 4), (8, 1, 4))]
for segments in prompts:
    print("alone   ", [t for t, _ in generate_step(mx.array(sum(segments, [])), model, max_tokens=8)])
generator, made = BatchGenerator(model), {}
generator.insert_segments(prompts, [8, 8])
while responses := generator.next_generated():
    for response in responses:
        made.setdefault(response.uid, []).append(response.token)
for uid in sorted(made):
    print("in batch", made[uid])
