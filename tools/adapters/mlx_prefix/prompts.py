"""What all three libraries cache: the KV caches of one prompt, mlx-lm's KVCache for each layer, as a server fills them."""
import copy
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "mlx_lm"))
import package  # noqa: F401  mlx_lm without what loads tokenizers

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache, make_prompt_cache, trim_prompt_cache

TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
KVCache.step = 1  # what is allocated is what is there, so that a budget in bytes is one in tokens


def to_mlx(array, kind):
    made = mx.array(array)
    return made.view(mx.bfloat16) if kind == "bf16" else made


def to_numpy(array):
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)


def columns(cache):
    """(K, V) of the tokens that a KVCache has, mlx-lm's or mlx-vlm's."""
    return cache.keys[..., :cache.offset, :], cache.values[..., :cache.offset, :]


class Model:
    """What make_prompt_cache asks of a model."""

    def __init__(self, layers):
        self.layers = [None] * layers


class Prompt:
    """A request: its tokens so far, and the cache of each layer."""

    def __init__(self, setup, who, tokens, caches=None):
        self.setup, self.who, self.tokens = setup, who, list(tokens)
        self.caches = caches if caches is not None else make_prompt_cache(Model(setup.layers))

    def append(self, tokens, k, v):
        x = self.setup.x
        for layer, cache in enumerate(self.caches):
            mx.eval(cache.update_and_fetch(to_mlx(k[layer:layer + 1], x), to_mlx(v[layer:layer + 1], x)))
        self.tokens += tokens

    def rows(self):
        if not self.tokens:
            return self.setup.no_rows()
        layers = [columns(cache) for cache in self.caches]
        return tuple(np.concatenate([to_numpy(layer[part]) for layer in layers]) for part in (0, 1))

    def trim_to(self, tokens):
        trim_prompt_cache(self.caches, len(self.tokens) - tokens)
        del self.tokens[tokens:]

    def copy(self):
        return Prompt(self.setup, self.who, self.tokens, copy.deepcopy(self.caches))
