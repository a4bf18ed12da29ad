"""Adapter: the base class that an author fills in. Only `new` and `append` are needed; every other operation that the
library has is one more method, and one that is left out is answered with "unsupported".

What is done for the author (session.py): identity of tokens, arrays, masks, copies of results, probes that find what a
cache retains, exceptions as refusals, changed inputs, files that are saved, damaged and removed.

`cache` below is whatever `new` returned. Arrays are numpy, K and V (rows, kv_heads, columns, channels); bf16 and fp8 come
as uint16 and uint8 (to_float32, from_float32). A library with arrays of its own overrides give, keep and numpy.
"""
import copy
from typing import NamedTuple

import numpy as np

from . import damage
from .base import Implementation, Refused, Unsupported


class Setup(NamedTuple):
    """What holds for all caches of a case."""
    kv_heads: int
    query_heads: int
    k_dim: int
    v_dim: int
    x: str  # type of appended vectors, of queries and of attention's output
    growth_tokens: int  # step of capacity, where the library lets it be chosen


class Step(NamedTuple):
    """The last append, for attend: what it returned, kept."""
    k: object  # a tuple of arrays, as v: (elements,) of a plain format, (codes, scales, biases) of an affine one
    v: object
    mask: object
    queries: int


class Adapter(Implementation):
    # ------------------------------------------------------------------- who answers, and what of the kinds it has
    kinds = ("cache",)
    cache_profile = ""  # texts of reference/README.md, section 3.6; "" leaves the defaults
    plan = ""  # section 3.5; "" means base=stranger
    # Preconditions (base.py). Of "rows" (of filter and extract that are not there), "padding" (of another length
    # than the rows, negative), "pending" (other calls than append and finalize inside a prepared prefill), "lengths"
    # (of prepare; finalize before all arrived), "kinds" (merge and extend of other layouts or formats), "single" (merge
    # and extend of the other kind of cache), "counts" (negative), "columns" (appended shapes and type), "windows"
    # (of attend, below 1); and "results": what append and attend returned is read before the cache is used again, so
    # that it may be a view of live memory. Otherwise it is read again after each operation, and may not have changed.
    relies_on = frozenset()
    # True: append may be evaluated later, so the caller's arrays are compared only where a state is shown.
    lazy = False
    # True: give makes a copy, so what it gets need not be one, and may be read-only.
    copies = False
    file_suffix = ".state"  # of saved files, where the library insists on one

    setup = None  # of the case, from start on

    def start(self, setup):
        """A new case begins: no cache made before is used again."""

    # ----------------------------------------------------------------------------------------------- operations
    def new(self, layout, k, v, rows, padding):
        """An empty cache. layout: Layout; k, v: Format; padding: columns of each row that will be padding; [] none."""
        raise Unsupported("no caches")

    def append(self, cache, k, v):
        """Stores columns. Returns (keys, values, mask) as attention would get them: arrays (rows, heads, columns, *), a
        tuple of the planes of a coded one (codes, scales, biases; reference/README.md, 3.3), and a mask of masks.visible_of, over those columns."""
        raise Unsupported("no append")

    def prepare(self, cache, lengths, columns):
        """A prefill padded on the right begins: of the columns that follow until finalize, `columns` of them (-1: not
        known), row b takes lengths[b] as tokens."""
        raise Unsupported("no prefill padded on the right")

    def finalize(self, cache):
        """All columns of the prepared prefill arrived; without one, nothing is to be done."""

    def trim(self, cache, count):
        """The newest `count` tokens of every row go. Returns how many did."""
        raise Unsupported("no trim")

    def filter(self, cache, rows):
        """The cache has these rows from now on, a list of integers; np.array of it is int64, of an empty one too. May return
        another cache in its place; so may extend, to_quantized."""
        raise Unsupported("no filter")

    def extend(self, cache, other):
        """The cache gains the rows of the other, which stays as it is."""
        raise Unsupported("no extend")

    def merge(self, caches):
        """A batch of caches of one row."""
        raise Unsupported("no merge")

    def extract(self, cache, row):
        """A cache of that row alone."""
        raise Unsupported("no extract")

    def to_quantized(self, cache, k, v):
        """The same tokens in other formats."""
        raise Unsupported("no change of formats")

    def copy(self, cache):
        return copy.deepcopy(cache)

    def probe_copy(self, cache):
        """A copy that is thrown away after one append. Override where a cheaper one is as good."""
        return self.copy(cache)

    def save(self, cache, path):
        raise Unsupported("no files")

    def load(self, path):
        raise Unsupported("no files")

    def file_changed(self, path, how, at):
        """The bytes that stand under the name after damage. "version" means one that does not exist; a format that has
        none is not damaged that way."""
        with open(path, "rb") as file:
            return damage.damaged(file.read(), how, at)

    def attend(self, cache, step, q, scale, window, sinks):
        """Attention of the queries of the last append, (rows, query_heads, queries, v_dim) of the setup's x.

        step: what that append returned. window: the newest `window` tokens beside the layout's rule, or None. sinks:
        float32 (query_heads), logits whose value is 0, or None.
        """
        raise Unsupported("no attention")

    # ----------------------------------------------------------------------------- what a cache tells of itself
    def retained(self, cache):
        """What the cache retains, without an append: (keys, values, held), arrays as append returns them and a bool array
        (rows, columns): true where the column holds a token of the row. Changes nothing.

        Override it where the cache can say so. Otherwise a column of a known value is appended to a copy (probe_copy),
        which shows what the next query sees and no more; reports then say that it was a probe.
        """
        raise Unsupported("cannot tell what is retained")

    def tell(self, cache):
        """Whatever can be told, of: rows, layout, k_format, v_format, offsets, unfed, size, live_bytes, capacity_bytes,
        empty, trimmable, pending, held. Left out: cannot tell, and not judged."""
        return {}

    # -------------------------------------------------------------------------- libraries with arrays of their own
    def give(self, array, kind):
        """The library's array of numpy's, which holds type `kind`."""
        return array

    def keep(self, array):
        """What the library returned, safe from whatever is done to the cache later."""
        return np.array(array)

    def ready(self, arrays, caches):
        """Before these arrays are read and `tell` is asked of these caches: one evaluation for all, where there is such
        a thing."""

    def numpy(self, array):
        """numpy's array of one that give or keep returned; bf16 as uint16."""
        return array

    # --------------------------------------------------------------------------------------------- other kinds
    def attention(self, fields, inputs):
        """A case of kind attention: {"out": array, "lse": array where asked}. fields: those of the case, numbers where
        they are; inputs: arrays by name. case_mask makes the mask."""
        raise Unsupported("no attention")

    def codec(self, fields, inputs):
        """A case of kind codec: {plane: ...} of encode ("codes", "scales", "biases"), {"y": ...} of the others."""
        raise Unsupported("no codec")

    # --------------------------------------------------------------------------------------------------- speech
    def declare(self, plan=None, profile=None):
        """Inside attend, attention or codec: how this very answer is computed, where it differs from the greeting."""
        self.declared = {key: text for key, text in (("plan", plan), ("profile", profile)) if text is not None}

    declared = {}
