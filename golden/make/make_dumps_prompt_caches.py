"""Makes the prompt caches of golden/dumps that an older mlx-lm saves, out of cache.safetensors, which the pinned one has saved.

Usage: python make_dumps_prompt_caches.py WHEELS [DIRECTORY]     (DIRECTORY default: ../dumps beside this file)
WHEELS is a folder with the wheel of OLD, got by: pip download --no-deps -d WHEELS mlx-lm==0.31.3
Needs mlx and mlx-lm of requirements-mlx.txt. Caches and files are those of mlx-lm; of them all, K and V are the same rows.

  cache_0_31.safetensors        plain: classes in the metadata, no numbers
  cache_0_31_4bit.safetensors   codes: the state of a layer, in the metadata, has three fields: tokens, group size, bits
  cache_0_31_split.safetensors  K in 8 bits and V in 4: five fields, by a class as mlx-lm's pull request 1074 has it
"""
import pathlib
import sys

import mlx.core as mx
from mlx_lm.models import cache as pinned
from releases import release

OLD = "0.31.3"
GROUP, K_BITS, V_BITS = 64, 8, 4


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    wheels = pathlib.Path(arguments[1]).resolve()
    dumps = pathlib.Path(__file__).parent.parent / "dumps"
    directory = pathlib.Path(arguments[2] if len(arguments) > 2 else dumps)
    mx.set_default_device(mx.cpu)
    rows = [layer.keys_and_values() for layer in pinned.load_prompt_cache(str(dumps / "cache.safetensors"))]
    with release(wheels, OLD, "cache") as old:

        class QuantizedKVCache(old.QuantizedKVCache):
            """Of two widths: files name a class by its last name."""

            @property
            def meta_state(self):
                return tuple(map(str, (self.offset, GROUP, K_BITS, GROUP, V_BITS)))

        def save(name, caches):
            old.save_prompt_cache(str(directory / f"{name}.safetensors"), caches)

        plain, split = [], []
        for keys, values in rows:
            made = old.KVCache()
            made.update_and_fetch(keys, values)
            plain.append(made)
            made = QuantizedKVCache(group_size=GROUP, bits=V_BITS)
            made.keys = mx.quantize(keys, group_size=GROUP, bits=K_BITS)
            made.values = mx.quantize(values, group_size=GROUP, bits=V_BITS)
            made.offset = keys.shape[2]
            split.append(made)
        save("cache_0_31", plain)
        save("cache_0_31_4bit", [made.to_quantized(group_size=GROUP, bits=4) for made in plain])
        save("cache_0_31_split", split)


if __name__ == "__main__":
    main(sys.argv)
