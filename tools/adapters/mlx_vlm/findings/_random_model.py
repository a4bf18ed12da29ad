"""A decoder of two layers with random weights, as mlx-vlm's generators call one, and greedy generation of prompts by their BatchGenerator."""
import types

import mlx.core as mx
import mlx.nn as nn

mx.set_default_device(mx.cpu)

from mlx_vlm.models.base import create_attention_mask, scaled_dot_product_attention

VOCABULARY, WIDTH, HEADS, HEAD_DIM = 128, 128, 2, 64


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * HEADS * HEAD_DIM, bias=False)
        self.out = nn.Linear(HEADS * HEAD_DIM, WIDTH, bias=False)
        self.norm, self.rope = nn.RMSNorm(WIDTH), nn.RoPE(HEAD_DIM)

    def __call__(self, x, mask, cache):
        rows, columns, _ = x.shape
        q, k, v = (part.reshape(rows, columns, HEADS, HEAD_DIM).transpose(0, 2, 1, 3) for part in mx.split(self.qkv(self.norm(x)), 3, -1))
        q, k = self.rope(q, offset=cache.offset), self.rope(k, offset=cache.offset)
        k, v = cache.update_and_fetch(k, v)
        out = scaled_dot_product_attention(q, k, v, cache=cache, scale=HEAD_DIM**-0.5, mask=mask)
        return x + self.out(out.transpose(0, 2, 1, 3).reshape(rows, columns, -1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        mx.random.seed(0)
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.layers = [Layer(), Layer()]
        self.embed.weight, self.head.weight = self.embed.weight * 8, self.head.weight * 16
        for layer in self.layers:
            layer.qkv.weight = layer.qkv.weight * 4

    def __call__(self, inputs, inputs_embeds=None, cache=None, **_):
        x = self.embed(inputs) if inputs_embeds is None else inputs_embeds
        mask = create_attention_mask(x, cache[0])
        for layer, held in zip(self.layers, cache):
            x = layer(x, mask, held)
        return types.SimpleNamespace(logits=self.head(x), cross_attention_states=None, encoder_outputs=None)


class Stops:
    """No token ends a text."""

    def add_eos_token_ids(self, tokens):
        pass

    def __call__(self, token):
        return False


def small_model():
    """What a BatchGenerator is made of: the model, and a processor."""
    model = Model()
    mx.eval(model.parameters())
    return model, types.SimpleNamespace(stopping_criteria=Stops())


def generated(generator, prompts, late=0, tokens=8):
    """The tokens of each prompt; the last `late` prompts come when the others have begun to generate."""
    model = generator.model
    first, later = prompts[:len(prompts) - late], prompts[len(prompts) - late:]
    found = {}

    def insert(some):
        embeds = [{"inputs_embeds": model.embed(mx.array([prompt]))} for prompt in some]
        return generator.insert(some, max_tokens=tokens, prompt_kwargs=embeds)

    order = list(insert(first))
    while generator.has_work or later:
        _, responses = generator.next()
        for response in responses:
            found.setdefault(response.uid, []).append(response.token)
        if later and responses:
            order += list(insert(later))
            later = []
    return [found[uid] for uid in order]
