"""OpenVINO's paged cache of keys by channel (PagedAttentionExtension of its CPU plugin), before kvcheck.

    new     a cache tensor of blocks of 32 tokens; u4 or u8 keys for channel:4:g32:f32 or channel:8:g32:f32
    append  one inference: the plugin codes the new keys, and the open block again, and is shown as its cache tensor holds it
    attend  the same inference once more on the blocks as they were before, with the queries: one call stores and attends

Values are the adapter's own: beside coded keys the plugin codes values too, u8 per token, and no format of kvcheck's is that. The plugin
gets one-hot values in their place, 255 in the channel of the token's position, whose codes are exact: attention over them is its weights,
and the product with the values is made here, in float64.

Option: --cache-profile TEXT states another one, to see that it is judged.
"""
import argparse

import numpy as np
import openvino as ov

from kvcheck_adapter import Adapter, Refused, Unsupported
from kvcheck_adapter.channel import packed
from paged_cache import TOKENS, PagedCache

POSITIONS = 512  # channels of the one-hot values: tokens that a cache can hold
ONE_HOT = 255  # a row of 0 and 255 has the step 1
FORMATS = [f"channel:{bits}:g{TOKENS}:f32" for bits in (4, 8)]


class Paged:
    """before: the blocks that the last append found."""
    __slots__ = ("cache", "before", "k", "v", "keys", "values")

    def __init__(self, cache, k, v, values):
        self.cache, self.before, self.k, self.v, self.keys, self.values = cache, None, k, v, None, values


def one_hot(cache, columns):
    values = np.zeros((cache.sequences, cache.kv_heads, columns, POSITIONS), np.float32)
    new = np.arange(columns)
    values[:, :, new, cache.length + new] = ONE_HOT
    return values


class OpenVino(Adapter):
    name = "openvino"
    version = ov.__version__.split("-")[0]
    cache_profile = "regroup=open"
    profile = "decode=two_roundings channel=openvino masked_row=zero mask_value=-inf"
    spaces = [{"kind": "cache", "layouts": ["linear"], "x": ["f32"], "pairs": [f"{text} f32" for text in FORMATS], "rows": "any",
               "padding": False, "empty_batch": False, "window": False, "sinks": False,
               "operations": ["new", "append", "attend", "copy", "drop"]}]

    def __init__(self, *options):
        parser = argparse.ArgumentParser(prog="openvino", allow_abbrev=False)
        parser.add_argument("--cache-profile", default=self.cache_profile)
        self.cache_profile = parser.parse_args(options).cache_profile

    # --------------------------------------------------------------------------------- operations
    def new(self, layout, k, v, rows, padding):
        s = self.setup
        if k.text not in FORMATS or v.text != "f32" or layout.text != "linear" or rows < 1 or any(padding):
            raise Unsupported("keys of 4 or 8 bits per channel in blocks of 32 tokens, values of f32, rows without padding")
        cache = PagedCache(k.bits, s.k_dim, rows, POSITIONS // TOKENS, s.kv_heads, s.query_heads, POSITIONS)
        return Paged(cache, k, v, np.zeros((rows, s.kv_heads, 0, s.v_dim), np.float32))

    def append(self, paged, k, v):
        s, cache = self.setup, paged.cache
        rows, columns = cache.sequences, k.shape[2]
        if k.dtype != np.float32 or k.shape != (rows, s.kv_heads, columns, s.k_dim) or v.shape != (*k.shape[:3], s.v_dim):
            raise Refused("columns of another shape or type than the setup's")  # which its caller knows
        if cache.length + columns > POSITIONS:
            raise Unsupported(f"more than {POSITIONS} tokens")
        paged.before = cache.copied()
        paged.keys = np.array(k)
        cache.append(k, one_hot(cache, columns), np.zeros((rows, s.query_heads, columns, s.k_dim), np.float32))
        paged.values = np.concatenate([paged.values, v], 2)
        return (*self.held(paged), None if columns == 1 else "causal")

    def copy(self, paged):
        other = Paged(paged.cache.copied(), paged.k, paged.v, paged.values)
        other.before, other.keys = paged.before, paged.keys
        return other

    def attend(self, paged, step, q, scale, window, sinks):
        if window is not None or sinks is not None:
            raise Unsupported("a window, or sinks")
        again = paged.before.copied()
        weights = again.append(paged.keys, one_hot(again, step.queries), q, scale)
        if not np.array_equal(again.keys, paged.cache.keys):
            raise RuntimeError("the same append of keys stored other bytes with other queries")
        weights = weights[..., :again.length].astype(np.float64) / ONE_HOT
        values = paged.values.repeat(q.shape[1] // paged.values.shape[1], 1)
        return (weights @ values).astype(np.float32)

    # --------------------------------------------------------------------------------------- tell
    def held(self, paged):
        """The planes of all tokens: of keys as the cache tensor has them, of values the vectors."""
        cache = paged.cache

        def of_tokens(part):
            """(blocks, heads, tokens of a block, *) as (rows, heads, tokens, *)."""
            part = part.reshape(cache.sequences, cache.blocks, *part.shape[1:]).swapaxes(1, 2)
            return part.reshape(*part.shape[:2], -1, part.shape[-1])[:, :, :cache.length]

        codes, scales, zeros = cache.stored()
        words = packed(codes.reshape(-1, cache.channels), paged.k.bits).reshape(*codes.shape[:3], -1)
        of_block = [np.repeat(part[:, :, None], TOKENS, 2) for part in (scales, zeros)]
        return tuple(of_tokens(part) for part in (words, *of_block)), (paged.values,)

    def retained(self, paged):
        return (*self.held(paged), np.ones((paged.cache.sequences, paged.cache.length), bool))

    def tell(self, paged):
        length = paged.cache.length
        return {"k_format": paged.k.text, "v_format": paged.v.text, "offsets": [length] * paged.cache.sequences, "size": length}


ADAPTER = OpenVino
