"""mlx-vlm: a batch that has no tokens yet and one that has, joined."""
import mlx.core as mx

mx.set_default_device(mx.cpu)

from mlx_vlm.turboquant import BatchTurboQuantKVCache

for empty_first in (True, False):
    empty, filled = BatchTurboQuantKVCache([0], bits=4), BatchTurboQuantKVCache([0, 0], bits=4)
    filled.update_and_fetch(mx.ones((2, 1, 3, 32)), mx.ones((2, 1, 3, 32)))
    first, second = (empty, filled) if empty_first else (filled, empty)
    first.extend(second)
    print(f"a batch of {first.batch_size} rows has K of {first.keys.norms.shape[0]}")
    try:
        first.update_and_fetch(mx.ones((3, 1, 1, 32)), mx.ones((3, 1, 1, 32)))
        print("a token of each is appended")
    except Exception as error:
        print(f"a token of each: {type(error).__name__}: {error}")
