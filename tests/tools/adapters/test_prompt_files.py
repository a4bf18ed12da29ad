#!/usr/bin/env python3
"""mlx-lm loads the files of a folder of kept prompts, and goes on with them.

    test_prompt_files.py WRITE_PROMPT_FILES

It starts itself again in the environment of tools/adapters/mlx_lm, and is skipped (77) without that.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ADAPTERS = pathlib.Path(__file__).resolve().parents[3] / "tools/adapters"
LAYERS, HEADS, TOKENS, DIM, BLOCK = 3, 2, 8, 64, 4


def check(folder, coded):
    import mlx.core as mx
    import numpy as np
    from mlx_lm.models.cache import KVCache, QuantizedKVCache, load_prompt_cache

    def rows(suffix):
        return np.fromfile(folder / f"rows.{suffix}", np.float32).reshape(LAYERS, 1, HEADS, TOKENS, DIM)

    want = rows("k"), rows("v")

    def equal(caches, first, count):
        for layer, cache in enumerate(caches):
            got = cache.keys_and_values()
            if isinstance(cache, QuantizedKVCache):
                got = [mx.dequantize(*part, group_size=cache.group_size, bits=cache.bits) for part in got]
            for part, all_rows in zip(got, want):
                np.testing.assert_array_equal(np.array(part), all_rows[layer][:, :, first:first + count])

    files = sorted(folder.glob("block-*.safetensors"))
    assert len(files) == TOKENS // BLOCK, files
    for index, file in enumerate(files):
        caches, metadata = load_prompt_cache(str(file), return_metadata=True)
        assert [type(cache) for cache in caches] == [QuantizedKVCache if coded else KVCache] * LAYERS
        assert [cache.offset for cache in caches] == [BLOCK] * LAYERS
        assert metadata["position"] == str(index * BLOCK), metadata
        assert metadata["tokens"] == " ".join(str(index * BLOCK + i) for i in range(BLOCK)), metadata
        equal(caches, index * BLOCK, BLOCK)
        if coded:
            assert all((cache.group_size, cache.bits) == (32, 4) for cache in caches)
    caches = load_prompt_cache(str(folder / "prompt.safetensors"))
    assert [type(cache) for cache in caches] == [KVCache] * LAYERS
    equal(caches, 0, TOKENS)
    # A prompt goes on.
    more = mx.ones((1, HEADS, 1, DIM))
    keys, values = caches[0].update_and_fetch(more, more)
    assert keys.shape == values.shape == (1, HEADS, TOKENS + 1, DIM) and caches[0].offset == TOKENS + 1
    np.testing.assert_array_equal(np.array(keys[:, :, :TOKENS]), want[0][0])
    np.testing.assert_array_equal(np.array(values[:, :, TOKENS:]), 1)


def main():
    if "KVCHECK_TEST_STARTED" not in os.environ:
        sys.path.insert(0, str(ADAPTERS))
        from check_findings import environment

        python = environment(ADAPTERS / "mlx_lm")
        if python is None:
            print("skipped: tools/adapters/make_venv.sh mlx_lm makes the environment")
            return 77
        return subprocess.run([python, __file__, *sys.argv[1:]],
                              env=dict(os.environ, KVCHECK_TEST_STARTED="1"), check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        for name in ("plain", "coded"):
            check(pathlib.Path(folder) / name, name == "coded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
