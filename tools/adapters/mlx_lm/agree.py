"""A decoder in mlx-lm, teacher-forced through the library's caches, on the CPU; float32.

    venv/bin/python agree.py GOLD FOLDER RUN... --model FOLDER

What a RUN is: ../teacher_forced.py. The library has no model_type ministral; its llama has the same parts, windows by
layer_types among them, and reads the same weights. Rows of a batch are padded on the left (BatchKVCache(left_padding)).
Restored: save_prompt_cache and load_prompt_cache.
"""
import importlib.metadata
import pathlib
import sys

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models import cache as caches
from mlx_lm.utils import load_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from teacher_forced import main  # noqa: E402

GROUP = 64  # channels of a scale


class State:
    def __init__(self, cache, kv_bits):
        self.cache, self.kv_bits = cache, kv_bits


class MlxLm:
    version = f"mlx-lm {mlx_lm.__version__}, mlx {importlib.metadata.version('mlx')}"

    def __init__(self, options):
        mx.set_default_device(mx.cpu)
        self.model, _ = load_model(options.model, model_config={"model_type": "llama"})
        self.model.set_dtype(mx.float32)
        layers = len(self.model.layers)
        of_layers = lambda make: lambda: [make() for _ in range(layers)]
        quantized = lambda bits: of_layers(lambda: caches.QuantizedKVCache(group_size=GROUP, bits=bits))
        self.made = {
            "plain": (of_layers(caches.KVCache), "KVCache in every layer, a window's mask"),
            "sliding": (self.model.make_cache, "make_cache(): RotatingKVCache in the layer with a window"),
            "concatenate": (of_layers(caches.ConcatenateKVCache), "ConcatenateKVCache in every layer"),
            "affine8": (quantized(8), "QuantizedKVCache, 8 bits, groups of 64"),
            "affine4": (quantized(4), "QuantizedKVCache, 4 bits, groups of 64"),
            "kv_bits4": (self.model.make_cache, "make_cache(), quantized after a call as generate(kv_bits=4) does"),
        }
        self.caches = {name: words for name, (_, words) in self.made.items()}

    def start(self, name, lengths):
        made = self.made[name][0]()
        if len(lengths) == 1:
            return State(made, 4 if name == "kv_bits4" else None)
        padding = [max(lengths) - n for n in lengths]
        batched = {caches.KVCache: lambda layer: caches.BatchKVCache(padding),
                   caches.RotatingKVCache: lambda layer: caches.BatchRotatingKVCache(layer.max_size, padding)}
        return State([batched[type(layer)](layer) for layer in made], None)

    def feed(self, state, tokens):
        logits = np.array(self.model(mx.array(np.maximum(tokens, 0)), cache=state.cache))
        maybe_quantize_kv_cache(state.cache, quantized_kv_start=0, kv_group_size=GROUP, kv_bits=state.kv_bits)
        return logits

    def save(self, state, path):
        caches.save_prompt_cache(path + ".safetensors", state.cache)

    def load(self, path, name):
        return State(caches.load_prompt_cache(path + ".safetensors"), None)


if __name__ == "__main__":
    main(MlxLm)
