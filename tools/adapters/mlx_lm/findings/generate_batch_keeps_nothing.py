"""One prompt of 6 tokens under max_kv_size=8, by generate_step and as a batch of one by BatchGenerator, which
batch_generate calls: both should keep the first 4 tokens."""
import mlx.core as mx
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.models import qwen2

from _random_model import SIZES, filled, prompt

mx.set_default_device(mx.cpu)
model = filled(qwen2.Model(qwen2.ModelArgs(num_hidden_layers=3, tie_word_embeddings=False, **SIZES)), seed=0)
tokens = prompt(6)
print("alone   ", [t for t, _ in generate_step(mx.array(tokens), model, max_tokens=12, max_kv_size=8)])
generator, made = BatchGenerator(model, max_kv_size=8), []
generator.insert([tokens], [12])
while responses := generator.next_generated():
    made += [response.token for response in responses]
print("in batch", made)
