"""Makes golden/dumps/merge*: partial results of attention over ranges of keys, and what a merge makes of them, as a case of attention.

Usage: python make_dumps_merge.py [DIRECTORY]     (default: ../dumps beside this file)
Needs numpy and safetensors. The numbers are random, from a seed.

Each of 6 rows was asked about 4 ranges of keys: a partial output of 32 channels and its log-sum-exp, natural. Of two rows the last range
is empty: an output of 0, a log-sum-exp of -inf. A merge is attention of one query q = 1 over the ranges, k the log-sum-exps, v the
outputs, head_dim 1, scale 1: its weights are exp(lse_i - max) over their sum. A mask hides the empty ranges, since -inf as a key has
no product with every query.

  merge.safetensors             q, k, v, mask, and out and lse by the definition, in f32
  merge_wrong_base.safetensors  out of a merge that takes the natural log-sum-exps for those of base 2
"""
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

SEED = 27
ROWS, RANGES, CHANNELS = 6, 4, 32


def merged(partial, lse, base):
    """partial (rows, ranges, channels), lse (rows, ranges): the output and its log-sum-exp, in f32, range after range."""
    most = lse.max(axis=1, keepdims=True)
    weights = (np.exp if base == "e" else np.exp2)(lse - most)
    total = np.zeros((len(lse), 1), np.float32)
    out = np.zeros((len(lse), partial.shape[2]), np.float32)
    for i in range(lse.shape[1]):
        total += weights[:, i:i + 1]
        out += weights[:, i:i + 1] * partial[:, i]
    return out / total, most[:, 0] + np.log(total[:, 0])


def main(arguments):
    default = pathlib.Path(__file__).parent.parent / "dumps"
    directory = pathlib.Path(arguments[1] if len(arguments) > 1 else default)
    generator = np.random.default_rng(SEED)
    partial = generator.standard_normal((ROWS, RANGES, CHANNELS), np.float32)
    lse = 5 + generator.standard_normal((ROWS, RANGES), np.float32)
    partial[[1, 4], -1], lse[[1, 4], -1] = 0, -np.inf
    there = np.isfinite(lse)
    case = {"q": np.ones((ROWS, 1, 1, 1), np.float32), "k": np.where(there, lse, 0)[:, None, :, None], "v": partial[:, None],
            "mask": there[:, None, None, :]}
    for name, base in (("merge", "e"), ("merge_wrong_base", "2")):
        out, total = merged(partial, lse, base)
        answer = {"out": out[:, None, None]} | ({"lse": total[:, None, None]} if base == "e" else {})
        save_file({key: np.ascontiguousarray(value) for key, value in (case | answer).items()}, directory / f"{name}.safetensors")


main(sys.argv)
