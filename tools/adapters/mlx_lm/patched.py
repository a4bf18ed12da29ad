"""Repairs of the causes in FINDINGS.md, as monkey patches: with them (`run --patched`) drawn cases find nothing more (README.md
says in how many), which shows that what they find without them is the library's and not the adapter's.

Each function repairs one cause and bears the name of its finding. They are the least that makes the contract hold, no
proposal of how mlx-lm should be written.
"""
import functools
import hashlib
import os

import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models import cache as library

SINGLE = (library.KVCache, library.RotatingKVCache, library.QuantizedKVCache, library.ChunkedKVCache)
BATCHES = (library.BatchKVCache, library.BatchRotatingKVCache)
RINGS = (library.RotatingKVCache, library.BatchRotatingKVCache)


def wrap(owner, name, make):
    """owner.name becomes make(what it was)."""
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


# ---------------------------------------------------------------------------------- masks of rings
def ring_positions(cache, queries):
    """Positions of the columns that update_and_fetch of a RotatingKVCache will return."""
    offset, keep, size = cache.offset, cache.keep, cache.max_size
    if queries > 1:
        held = 0
        if cache.keys is not None:
            columns = cache.keys.shape[2]
            held = columns if cache._idx == columns or cache._idx < offset else cache._idx
            held = min(held, size - 1)
        kept = min(keep, held)
        return [*range(kept), *range(offset - (held - kept), offset + queries)]
    if offset < size:
        return list(range(offset + 1))
    place = size if cache.keys.shape[2] > size else cache._idx
    place = keep if place == size else place
    ring = size - keep
    newest = [0] * ring
    for back in range(ring):
        newest[(place - keep - back) % ring] = offset - back
    return [*range(keep), *newest]


def keep_in_masks():
    def make_mask(self, N, window_size=None, return_array=False):
        columns = mx.array(ring_positions(self, N))[None]
        queries = mx.arange(self.offset, self.offset + N)[:, None]
        newest = min(self.max_size - self.keep, window_size or self.max_size)
        return (columns <= queries) & ((columns > queries - newest) | (columns < self.keep))

    library.RotatingKVCache.make_mask = make_mask


def keep_lost_by_merge():
    def merge(_, caches):
        if any(c.keep for c in caches):
            raise NotImplementedError("batches of rings keep no tokens")
        return library.BatchRotatingKVCache.merge(caches)

    library.RotatingKVCache.merge = classmethod(merge)


def rotated_batch_then_chunk():
    def make_mask(self, N, window_size=None, return_array=False):
        left_padding = self.left_padding
        window_size = min(window_size or self.max_size, self.max_size)
        chunk = N > 1 or self._lengths is not None
        idx = self.keys.shape[2] if chunk and self.rotated else self._idx
        offset = min(self.max_size - 1, self._offset)
        rinds = mx.arange(offset + N)[None]
        linds = mx.arange(offset, offset + N)[:, None]
        mask = (linds >= rinds) & (linds < rinds + window_size)
        if (trim_size := idx - self.max_size + int(chunk)) > 0:
            left_padding = left_padding - trim_size
        rotated = not chunk and (self.rotated or idx >= self.max_size)
        if rotated:
            left_padding = left_padding - 1
        mask = mask & (rinds >= mx.expand_dims(left_padding, (1, 2, 3)))
        if rotated:
            mask = mx.roll(mask, shift=(0 if idx >= self.max_size else idx) + 1, axis=-1)
        return mask

    library.BatchRotatingKVCache.make_mask = make_mask


# ---------------------------------------------------------------------------------------- prefills
def prefill_ends_with_one_column():
    def make(original):
        def update_and_fetch(self, keys, values):
            if self._lengths is not None:
                return self._update_concat(keys, values)
            return original(self, keys, values)
        return update_and_fetch

    wrap(library.BatchRotatingKVCache, "update_and_fetch", make)


def loaded_batches():
    library.BatchRotatingKVCache._lengths = None
    library.BatchKVCache._right_padding = None


# -------------------------------------------------------------------------------------------- trim
def trim_beyond_short_row():
    for kind in BATCHES:
        def make(original):
            def trim(self, n):
                return original(self, min([n, *(max(0, o) for o in self.offset.tolist())]) if self.offset.size else 0)
            return trim

        wrap(kind, "trim", make)


def trim_into_earlier_chunk():
    def make(original):
        def trim(self, n):
            size, start = self.chunk_size, self.start_position
            if start > size * ((self.offset - n) // size):
                n = max(0, self.offset - size * -(-start // size))
            return original(self, n)
        return trim

    wrap(library.ChunkedKVCache, "trim", make)


def negative_trim():
    for kind in (*SINGLE, *BATCHES):
        def make(original):
            def trim(self, n):
                if n < 0:
                    raise ValueError("a negative number of tokens")
                return original(self, n)
            return trim

        wrap(kind, "trim", make)

    def make_for_all(original):
        def trim_prompt_cache(cache, num_tokens):
            if num_tokens < 0:
                raise ValueError("a negative number of tokens")
            return original(cache, num_tokens)
        return trim_prompt_cache

    wrap(library, "trim_prompt_cache", make_for_all)


# -------------------------------------------------------------------------------------------- rows
def filter_of_unfed_padding_and_to_nothing():
    def filter_linear(self, batch_indices):
        rows = mx.array(batch_indices, dtype=mx.int32)
        self.offset, self.left_padding = self.offset[rows], self.left_padding[rows]
        shared = min(min(self.left_padding.tolist(), default=0), self._idx)
        if self.keys is not None:
            self.keys, self.values = (a[rows][..., shared:, :] for a in (self.keys, self.values))
        self._idx -= shared
        self.left_padding = self.left_padding - shared

    def make(original):
        def filter_rings(self, batch_indices):
            return original(self, mx.array(batch_indices, dtype=mx.int32))
        return filter_rings

    library.BatchKVCache.filter = filter_linear
    wrap(library.BatchRotatingKVCache, "filter", make)


def batch_of_no_rows():
    def make(original):
        def init(self, *arguments, **named):
            original(self, *arguments, **named)
            self.left_padding, self.offset = (a.astype(mx.int32) for a in (self.left_padding, self.offset))
        return init

    for kind in BATCHES:
        wrap(kind, "__init__", make)


def extract_of_empty():
    def make_linear(original):
        def extract(self, idx):
            return library.KVCache() if self.keys is None else original(self, idx)
        return extract

    def make_ring(original):
        def extract(self, idx):
            if self.keys is None:
                return library.RotatingKVCache(self.max_size)
            made = original(self, idx)
            made.offset = max(0, made.offset)  # extract_inside_padding
            return made
        return extract

    wrap(library.BatchKVCache, "extract", make_linear)
    wrap(library.BatchRotatingKVCache, "extract", make_ring)


# ----------------------------------------------------------------------------------------- appends
def bits_across_words():
    def make(original):
        def update_and_fetch(self, keys, values):
            if self.keys is None:
                rows, heads, count, _ = keys.shape
                room = -(-count // self.step) * self.step

                def zeros(dim):
                    groups = (rows, heads, room, dim // self.group_size)
                    return (mx.zeros((rows, heads, room, dim * self.bits // 32), mx.uint32),
                            mx.zeros(groups, keys.dtype), mx.zeros(groups, keys.dtype))

                self.keys, self.values = zeros(keys.shape[-1]), zeros(values.shape[-1])
            return original(self, keys, values)
        return update_and_fetch

    wrap(library.QuantizedKVCache, "update_and_fetch", make)


def restored_where_it_raises(original):
    def update_and_fetch(self, keys, values):
        before = self.__dict__.copy()
        if self.keys is None:  # arrays may be changed in place
            before.update((name, mx.array(v)) for name, v in before.items() if isinstance(v, mx.array))
        try:
            return original(self, keys, values)
        except Exception:
            self.__dict__.update(before)
            raise
    return update_and_fetch


def failed_append_moves_offset():
    for kind in (*SINGLE, *BATCHES):
        if kind not in RINGS:
            wrap(kind, "update_and_fetch", restored_where_it_raises)


def failed_append_leaves_keys():
    for kind in RINGS:
        wrap(kind, "update_and_fetch", restored_where_it_raises)


def checked(check):
    def make(original):
        def update_and_fetch(self, keys, values):
            if self.keys is not None:
                for given, stored in ((keys, self.keys), (values, self.values)):
                    check(self, given, stored)
            if check is check_shape and keys.shape[:3] != values.shape[:3]:
                raise ValueError("K and V of different columns")
            return original(self, keys, values)
        return update_and_fetch
    return make


def check_shape(cache, given, stored):
    if isinstance(stored, (tuple, list)):
        dim, stored = stored[1].shape[3] * cache.group_size, stored[1]
    else:
        dim = stored.shape[3]
    if given.shape[:2] != stored.shape[:2] or given.shape[3] != dim:
        raise ValueError("columns of another shape than the cache's")


def check_type(cache, given, stored):
    if given.dtype != (stored[1] if isinstance(stored, (tuple, list)) else stored).dtype:
        raise ValueError("columns of another type than the cache's")


def append_is_broadcast():
    for kind in (*SINGLE, *BATCHES):
        wrap(kind, "update_and_fetch", checked(check_shape))


def append_of_another_type():
    for kind in (*SINGLE, *BATCHES):
        wrap(kind, "update_and_fetch", checked(check_type))


# ------------------------------------------------------------------------------------------- files
def flipped_bit_in_file():
    def digest(path):
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def make_save(original):
        def save_prompt_cache(file_name, cache, metadata=None):
            original(file_name, cache, metadata)
            with open(file_name + ".sha256", "w") as file:
                file.write(digest(file_name))
        return save_prompt_cache

    def make_load(original):
        def load_prompt_cache(file_name, return_metadata=False):
            if not os.path.exists(file_name):
                raise FileNotFoundError("no such file")
            with open(file_name + ".sha256") as file:
                if file.read() != digest(file_name):
                    raise ValueError("a damaged file")
            return original(file_name, return_metadata)
        return load_prompt_cache

    wrap(library, "save_prompt_cache", make_save)
    wrap(library, "load_prompt_cache", make_load)


# --------------------------------------------------------------------------------------- attention
def queries_scaled_in_place():
    def make(original):
        def quantized(queries, *arguments, **named):
            return original(mx.array(queries), *arguments, **named)
        return quantized

    wrap(base, "quantized_scaled_dot_product_attention", make)


def values_of_another_width_and_masks_by_head():
    """Key/value heads are repeated in place of grouping the query heads."""
    def make(original):
        def quantized(queries, q_keys, q_values, scale, mask, group_size=64, bits=8):
            repeats = queries.shape[1] // q_keys[0].shape[-3]
            by_head = isinstance(mask, mx.array) and mask.ndim > 3 and mask.shape[-3] > 1
            if repeats > 1 and (by_head or q_values[1].shape[-1] != q_keys[1].shape[-1]):
                q_keys, q_values = (tuple(mx.repeat(part, repeats, axis=-3) for part in parts)
                                    for parts in (q_keys, q_values))
            return original(queries, q_keys, q_values, scale, mask, group_size, bits)
        return quantized

    wrap(base, "quantized_scaled_dot_product_attention", make)


def nan_in_padding():
    def make(original):
        def scaled_dot_product_attention(queries, keys, values, *arguments, **named):
            if isinstance(values, mx.array):
                keys, values = (mx.where(mx.isnan(a), 0, a) for a in (keys, values))
            return original(queries, keys, values, *arguments, **named)
        return scaled_dot_product_attention

    wrap(base, "scaled_dot_product_attention", make)


REPAIRS = (keep_in_masks, keep_lost_by_merge, rotated_batch_then_chunk, prefill_ends_with_one_column, loaded_batches,
           trim_beyond_short_row, trim_into_earlier_chunk, negative_trim, filter_of_unfed_padding_and_to_nothing,
           batch_of_no_rows, extract_of_empty, bits_across_words, failed_append_moves_offset, failed_append_leaves_keys,
           append_is_broadcast, append_of_another_type, flipped_bit_in_file, queries_scaled_in_place,
           values_of_another_width_and_masks_by_head, nan_in_padding)


def apply(names=()):
    """All of them, or those of these names."""
    for repair in REPAIRS:
        if not names or repair.__name__ in names:
            repair()
