"""Speculative decoding with layers whose window is 16: it should generate what the model generates by itself, as it does
while all tokens fit into the window."""
import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models import llama

from _random_model import SIZES, filled, prompt

mx.set_default_device(mx.cpu)


def model(seed):
    layers = ["sliding_attention", "full_attention"]
    return filled(llama.Model(llama.ModelArgs(num_hidden_layers=2, tie_word_embeddings=False, layer_types=layers,
                                              sliding_window=16, **SIZES)), seed)


target, draft = model(0), model(1)
asked = prompt(6)
print("alone       ", [t for t, _ in generate_step(mx.array(asked), target, max_tokens=20)])
print("with a draft", [t for t, _, _ in speculative_generate_step(mx.array(asked), target, draft, max_tokens=20)])
