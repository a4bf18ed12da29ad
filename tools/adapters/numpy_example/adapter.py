"""A plain numpy cache before kvcheck, with everything that an adapter can say; rows_cache.py is the cache.

Options, for tests: --broken lets a ring forget one token too many.
"""
import argparse

import numpy as np

from kvcheck_adapter import Adapter, Unsupported, case_mask, from_float32, to_float32
from kvcheck_adapter.storage import STORED
from rows_cache import MAGIC, RowsCache, Rule

PLAIN = ["f32", "f16", "bf16"]


class BrokenRule(Rule):
    """What a window of W - 1 in place of W does to a ring."""

    def seen(self, token, query):
        seen = super().seen(token, query)
        return seen & (token != query - (self.window - self.keep) + 1) if self.kind == "ring" else seen


def attention(q, k, v, scale, mask, sinks, kind):
    """q, k, v (B, heads, *, channels) in type `kind`; mask: bool or additive, over scores, or None. In float32."""
    q, k, v = (to_float32(array, kind) for array in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("bhld,bhtd->bhlt", q, k) * np.float32(scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sinks is not None:
        highest = np.maximum(highest, sinks[None, :, None, None])
    highest = np.where(np.isfinite(highest), highest, np.float32(0))
    weights = np.exp(scores - highest)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[None, :, None, None] - highest)
    seen = np.where(total > 0, total, np.float32(1))
    return from_float32(np.einsum("bhlt,bhtd->bhld", weights, v) / seen, kind)


class NumpyExample(Adapter):
    name, version = "numpy-example", "1"
    kinds = ("cache", "attention")
    profile = "masked_row=zero"
    spaces = [
        {"kind": "cache", "layouts": ["*"], "formats": PLAIN, "x": PLAIN, "same_format": True, "stored_as_given": True,
         "rows": "any", "padding": True,
         "operations": ["new", "append", "prepare", "finalize", "trim", "filter", "extend", "merge", "extract", "copy",
                        "save", "load", "damage", "attend", "drop"]},
        *({"kind": "attention", "q": [kind], "k": [kind], "v": [kind], "out": "q", "lse": False, "softcap": False,
           "alibi": False, "sinks": True} for kind in PLAIN),
    ]

    def __init__(self, *options):
        parser = argparse.ArgumentParser(prog="numpy_example", allow_abbrev=False)
        parser.add_argument("--broken", action="store_true")
        self.rule = BrokenRule if parser.parse_args(options).broken else Rule

    def new(self, layout, k, v, rows, padding):
        s = self.setup
        if not k.text == v.text == s.x:
            raise Unsupported("stores K and V as they are given")
        rule = self.rule(layout.kind, layout.window, layout.keep, layout.chunk)
        return RowsCache(rule, s.kv_heads, s.k_dim, s.v_dim, STORED[s.x], rows, padding)

    def append(self, cache, k, v):
        return cache.append(k, v)

    def prepare(self, cache, lengths, columns):
        cache.prepare(lengths)

    def finalize(self, cache):
        cache.finalize()

    def trim(self, cache, count):
        return cache.trim(count)

    def filter(self, cache, rows):
        cache.filter(rows)

    def extend(self, cache, other):
        cache.extend(other)

    def merge(self, caches):
        return RowsCache.merge(caches)

    def extract(self, cache, row):
        return cache.extract(row)

    def copy(self, cache):
        return cache.copy()

    def save(self, cache, path):
        data = cache.to_bytes()
        with open(path, "wb") as file:
            file.write(data)

    def load(self, path):
        with open(path, "rb") as file:
            return RowsCache.from_bytes(file.read())

    def file_changed(self, path, how, at):
        if how != "version":
            return super().file_changed(path, how, at)
        with open(path, "rb") as file:
            data = bytearray(file.read())
        data[len(MAGIC) + 32] ^= 0x80
        return bytes(data)

    def attend(self, cache, step, q, scale, window, sinks):
        if cache.to_come is not None:
            raise ValueError("a prepared prefill is not finalized")
        mask = step.mask
        if window is not None:
            if window < 1:
                raise ValueError("a window holds at least one token")
            mask = mask & self.newest(cache, mask, window)
        return attention(q, step.k[0], step.v[0], scale, mask, sinks, self.setup.x)

    def newest(self, cache, mask, window):
        """Beside the cache's own rule the newest `window` tokens; the kept ones of a ring stay."""
        rule, seen = cache.rule, np.zeros(mask.shape, bool)
        for b, row in enumerate(cache.rows):
            queries = np.flatnonzero(mask[b, 0].any(axis=-1))
            at = row.offset - len(queries) + np.arange(len(queries))
            kept = rule.keep if rule.kind == "ring" else 0
            shown = (row.positions > at[:, None] - window) | (row.positions < kept)
            seen[b, 0, queries, :len(row.positions)] = shown
        return seen

    def tell(self, cache):
        nothing = all(row.offset == 0 for row in cache.rows)
        state = {"rows": len(cache.rows), "empty": nothing, "pending": cache.to_come is not None,
                 "offsets": [row.offset for row in cache.rows], "unfed": [row.padding for row in cache.rows],
                 "held": [len(row.positions) for row in cache.rows]}
        return state

    def attention(self, fields, inputs):
        kind = fields["q"]
        scale = float(fields.get("scale") or int(fields["d"])**-0.5)
        mask = case_mask(fields, inputs)
        if isinstance(mask, str):
            queries, keys = int(fields["l"]), int(fields["t"])
            mask = np.tri(queries, keys, keys - queries, dtype=bool)
        elif mask is not None and mask.dtype != bool and mask is inputs["mask"]:
            mask = to_float32(mask, fields["mask"].rsplit(":", 1)[1])
        sinks = inputs.get("sinks")
        if sinks is not None:
            sinks = to_float32(sinks, fields["sinks"])
        self.declare(profile=self.profile)  # whatever convention a drawn case names, this is the one that is followed
        return {"out": attention(inputs["q"], inputs["k"], inputs["v"], scale, mask, sinks, kind)}
