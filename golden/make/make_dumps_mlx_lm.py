"""Makes the dumps of mlx-lm in golden/dumps: prompt caches of a small Llama, as mlx-lm itself saves them, and one of
them as an HDF5 file of h5py.

Usage: python make_dumps_mlx_lm.py WHEELS [DIRECTORY]     (DIRECTORY default: ../dumps beside this file)
WHEELS is a folder with the wheel of OLD, got by: pip download --no-deps -d WHEELS mlx-lm==0.24.0
Needs the packages of requirements-mlx.txt. Model, masks, caches and files are mlx-lm's; the weights are random, from a
seed. Unlike the golden files these have no schema: they are what a user of these libraries has in hand.

  cache.safetensors            a prompt of 13 tokens at once: layer N has N.0 keys, N.1 values, N.2 tokens seen
  cache_reloaded.safetensors   the same after load_prompt_cache and save_prompt_cache
  cache_4bit.safetensors       the same after to_quantized, as generate(kv_bits=4) does: N.0.0 codes, N.0.1 scales,
  cache_8bit.safetensors       N.0.2 biases of keys, N.1.* of values, N.3 group size, N.4 bits
  cache_steps.safetensors      the tokens one by one, as generate adds them
  cache_old_window.safetensors the prompt under the window mask of mlx-lm 0.24.0, which shows one key too many
  weights.safetensors          weights of two layers by MLX's save_weights, in bfloat16
  weights_4bit.safetensors     the same after mlx.nn.quantize: P.weight holds codes, P.scales, P.biases beside it
  cache.h5                     cache.safetensors by other names, with named axes, in float32 (h5py has no bfloat16)
"""
import pathlib
import sys

import h5py
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models import cache as mlx_lm_cache
from mlx_lm.models import llama

from releases import release

OLD = "0.24.0"
SEED = 7
TOKENS = 13
# Layers 2 and 4 attend to a window. Two query heads share a key/value head.
MODEL = llama.ModelArgs(
    model_type="llama", hidden_size=128, num_hidden_layers=5, intermediate_size=256, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, rms_norm_eps=1e-5, vocab_size=256, sliding_window=4,
    layer_types=["full_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"])
# Slots by which mlx-lm's caches grow: 256 of them would make these files twenty times larger.
STEP = 8


def prompt_cache(model, tokens, chunk):
    """The caches after the prompt: KVCache in every layer, since RotatingKVCache cannot be quantized."""
    cache = [mlx_lm_cache.KVCache() for _ in model.layers]
    for first in range(0, len(tokens), chunk):
        mx.eval(model(tokens[None, first:first + chunk], cache), [c.state for c in cache])
    return cache


def weights(directory):
    layers = nn.Sequential(nn.Linear(64, 64), nn.RMSNorm(64), nn.Linear(64, 8))
    layers.set_dtype(mx.bfloat16)
    layers.save_weights(str(directory / "weights.safetensors"))
    nn.quantize(layers, group_size=64, bits=4)
    layers.save_weights(str(directory / "weights_4bit.safetensors"))


def h5_dump(path, cache):
    axes = ("batch", "head", "token", "channel")
    with h5py.File(path, "w") as file:
        for layer, entry in enumerate(cache):
            group = file.create_group(f"layers/{layer}")
            for name, array in (("keys", entry.keys), ("values", entry.values)):
                data = np.array(array.astype(mx.float32))
                dataset = group.create_dataset(name, data=data, chunks=data.shape, compression="gzip")
                for dimension, label in zip(dataset.dims, axes):
                    dimension.label = label
            group.create_dataset("offset", data=np.int32(entry.offset))


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    wheels = pathlib.Path(arguments[1]).resolve()
    default = pathlib.Path(__file__).parent.parent / "dumps"
    directory = pathlib.Path(arguments[2] if len(arguments) > 2 else default)
    mx.set_default_device(mx.cpu)
    mlx_lm_cache.KVCache.step = STEP
    mx.random.seed(SEED)
    model = llama.Model(MODEL)
    model.set_dtype(mx.bfloat16)
    tokens = mx.random.randint(0, MODEL.vocab_size, (TOKENS,))

    def save(name, cache):
        mlx_lm_cache.save_prompt_cache(str(directory / f"{name}.safetensors"), cache)

    cache = prompt_cache(model, tokens, TOKENS)
    save("cache", cache)
    save("cache_reloaded", mlx_lm_cache.load_prompt_cache(str(directory / "cache.safetensors")))
    for bits in (4, 8):
        save(f"cache_{bits}bit", [entry.to_quantized(group_size=64, bits=bits) for entry in cache])
    save("cache_steps", prompt_cache(model, tokens, 1))
    with release(wheels, OLD) as base:
        old_mask = base.create_causal_mask
    current = mlx_lm_cache.create_causal_mask
    mlx_lm_cache.create_causal_mask = old_mask
    save("cache_old_window", prompt_cache(model, tokens, TOKENS))
    mlx_lm_cache.create_causal_mask = current
    weights(directory)
    h5_dump(directory / "cache.h5", cache)


if __name__ == "__main__":
    main(sys.argv)
