"""Repairs of the causes in FINDINGS.md at the edges of the interface: rows that are not there, calls while padding is
pending, caches that do not go together, arrays that two own. patched.py has the others.

Each function repairs one cause and bears the name of its finding.
"""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models import cache as library

from patched import BATCHES, check_shape, check_type, checked, restored_where_it_raises, wrap


def rows_not_there():
    def make_filter(original):
        def filter_rows(self, batch_indices):
            for row in batch_indices:
                check_row(self, row)
            return original(self, batch_indices)
        return filter_rows

    def make_extract(original):
        def extract(self, idx):
            check_row(self, idx)
            return original(self, idx)
        return extract

    def check_row(cache, row):
        if not 0 <= row < cache.offset.size:
            raise IndexError("no such row")

    for kind in BATCHES:
        wrap(kind, "filter", make_filter)
        wrap(kind, "extract", make_extract)


def rows_while_padding_is_pending():
    """And lengths_of_other_rows: what prepare is told is held against the rows, and finalize against what came."""
    def columns(cache):
        return cache._idx if isinstance(cache, library.BatchKVCache) else cache._offset

    def make_prepare(original):
        def prepare(self, *, left_padding=None, lengths=None, right_padding=None):
            refuse_pending(self)
            if lengths is not None and (len(lengths) != self.offset.size or min(lengths, default=0) < 0):
                raise ValueError("one length per row")
            original(self, left_padding=left_padding, lengths=lengths, right_padding=right_padding)
            if right_padding is not None and max(right_padding, default=0) > 0:
                self.announced = columns(self) + max(lengths)
        return prepare

    def make_finalize(original):
        def finalize(self):
            if self.announced is not None and columns(self) < self.announced:
                raise RuntimeError("columns are still to come")
            original(self)
            self.announced = None
        return finalize

    def refuse_pending(*caches):
        if any(getattr(cache, "announced", None) is not None for cache in caches):
            raise RuntimeError("padding is pending: finalize first")

    def make(original):
        def method(self, *arguments):
            refuse_pending(self, *arguments)
            return original(self, *arguments)
        return method

    def make_save(original):
        def save_prompt_cache(file_name, cache, metadata=None):
            refuse_pending(*cache)
            return original(file_name, cache, metadata)
        return save_prompt_cache

    def make_trim(original):
        def trim_prompt_cache(cache, num_tokens):
            refuse_pending(*cache)
            return original(cache, num_tokens)
        return trim_prompt_cache

    for kind in BATCHES:
        kind.announced = None
        wrap(kind, "prepare", make_prepare)
        wrap(kind, "finalize", make_finalize)
        for name in ("filter", "extract", "extend", "trim"):
            wrap(kind, name, make)
    wrap(library, "save_prompt_cache", make_save)
    wrap(library, "trim_prompt_cache", make_trim)


def extend_of_another_window():
    def check(caches):
        first = caches[0]
        if any(type(c) is not type(first) or getattr(c, "max_size", 0) != getattr(first, "max_size", 0) for c in caches):
            raise ValueError("caches of other classes or windows")

    def make_extend(original):
        def extend(self, other):
            check([self, other])
            return original(self, other)
        return extend

    def make_merge(original):
        def merge(caches):
            check(caches)
            return original(caches)
        return staticmethod(merge)

    for kind in BATCHES:
        wrap(kind, "extend", make_extend)
    for kind in (library.KVCache, library.RotatingKVCache):
        kind.merge = make_merge(kind.merge)


def ring_writes_to_the_callers_arrays():
    def make(original):
        def update_and_fetch(self, keys, values):
            return original(self, mx.array(keys), mx.array(values))
        return update_and_fetch

    for kind in (library.RotatingKVCache, library.BatchRotatingKVCache):
        wrap(kind, "update_and_fetch", make)


def bytes_of_empty_quantized():
    nbytes = library.QuantizedKVCache.nbytes.fget
    library.QuantizedKVCache.nbytes = property(lambda self: 0 if self.keys is None else nbytes(self))


def concatenate_trim():
    """And what patched.py repairs in the other classes: failed appends, negative counts; and an empty one that is loaded."""
    kind = library.ConcatenateKVCache

    def trim(self, n):
        if n < 0:
            raise ValueError("a negative number of tokens")
        n = min(self.offset, n)
        if n:
            self.offset -= n
            self.keys, self.values = (a[..., : self.offset, :] for a in (self.keys, self.values))
        return n

    def load(self, state):
        self.keys, self.values = state
        self.offset = 0 if self.keys is None else self.keys.shape[-2]

    kind.trim = trim
    kind.state = property(kind.state.fget, load)
    for make in (restored_where_it_raises, checked(check_shape), checked(check_type)):
        wrap(kind, "update_and_fetch", make)


def window_of_no_tokens():
    def make(original):
        def create_attention_mask(h, cache=None, window_size=None, return_array=False):
            if window_size is not None and window_size < 1:
                raise ValueError("a window holds at least one token")
            return original(h, cache, window_size, return_array)
        return create_attention_mask

    wrap(base, "create_attention_mask", make)


REPAIRS = (rows_not_there, rows_while_padding_is_pending, extend_of_another_window, ring_writes_to_the_callers_arrays,
           bytes_of_empty_quantized, concatenate_trim, window_of_no_tokens)


def apply(names=()):
    """All of them, or those of these names."""
    for repair in REPAIRS:
        if not names or repair.__name__ in names:
            repair()
