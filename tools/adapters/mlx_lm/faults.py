"""Faults put into the caches of mlx-lm, as monkey patches: `run --fault NAME`, with --patched or without. They measure whether
kvcheck reports a new fault as new where the library's own failures are known (measure_faults.py).

Each function is one fault, as a change of some lines of mlx_lm/models/cache.py would make it, put around whatever stands there,
a repair of patched.py included.
"""
import mlx.core as mx
from mlx_lm.models import base
from mlx_lm.models import cache as library

from patched import wrap

KV, Ring, Quantized, Chunked = library.KVCache, library.RotatingKVCache, library.QuantizedKVCache, library.ChunkedKVCache
Batch, BatchRing = library.BatchKVCache, library.BatchRotatingKVCache


def around(owner, name):
    """A decorator: owner.name becomes the function, which gets what it was as its first argument."""
    def put(function):
        wrap(owner, name, lambda original: lambda *args, **named: function(original, *args, **named))
    return put


def set_state(kind, change):
    """What loads a saved cache: change(cache) comes after it."""
    original = kind.state

    def setter(self, v):
        original.fset(self, v)
        change(self)

    kind.state = property(original.fget, setter)


# ------------------------------------------------------------------------------------ windows and masks
def window_one_too_wide():
    @around(library, "create_causal_mask")
    def _(original, N, offset=0, window_size=None, **named):
        return original(N, offset, window_size=window_size and window_size + 1, **named)


def window_one_too_narrow():
    @around(library, "create_causal_mask")
    def _(original, N, offset=0, window_size=None, **named):
        return original(N, offset, window_size=window_size and max(1, window_size - 1), **named)


def ring_mask_one_too_wide():
    @around(Ring, "make_mask")
    def _(original, self, N, window_size=None, return_array=False):
        mask = original(self, N, window_size=window_size, return_array=return_array)
        return "causal" if N > 1 else mask


def batch_mask_shows_padding():
    @around(Batch, "make_mask")
    def _(original, self, N, return_array=False, **named):
        kept = self.left_padding
        self.left_padding = mx.maximum(kept - 1, 0)
        mask = original(self, N, return_array=return_array, **named)
        self.left_padding = kept
        return mask


def batch_ring_mask_not_rolled():
    @around(BatchRing, "make_mask")
    def _(original, self, N, window_size=None, return_array=False):
        kept, self.rotated = self.rotated, self.rotated and N > 1
        mask = original(self, N, window_size=window_size, return_array=return_array)
        self.rotated = kept
        return mask


# -------------------------------------------------------------------------------------- what is stored
def growth_loses_last_token():
    @around(KV, "update_and_fetch")
    def _(original, self, keys, values):
        prev, grows = self.offset, self.keys is not None and self.offset + keys.shape[2] > self.keys.shape[2]
        made = original(self, keys, values)
        if grows and prev > 0:
            self.keys[..., prev - 1: prev, :] = mx.zeros_like(self.keys[..., prev - 1: prev, :])
            made = self.keys_and_values()
        return made


def batch_growth_forgets_values():
    @around(Batch, "update_and_fetch")
    def _(original, self, keys, values):
        prev, grows = self._idx, self.keys is not None and self._idx + keys.shape[2] > self.keys.shape[2]
        made = original(self, keys, values)
        if grows and prev > 0:
            self.values[..., :prev, :] = mx.zeros_like(self.values[..., :prev, :])
            made = self.keys_and_values()
        return made


def ring_wraps_over_kept():
    @around(Ring, "_update_in_place")
    def _(original, self, keys, values):
        keep, self.keep = self.keep, 0
        made = original(self, keys, values)
        self.keep = keep
        return made


def ring_wraps_a_slot_late():
    @around(Ring, "_update_in_place")
    def _(original, self, keys, values):
        wraps = self.keys is not None and self._idx == self.max_size and self.max_size - self.keep > 1
        if wraps:
            self._idx = self.keep + 1
        return original(self, keys, values)


def ring_offset_stops_at_window():
    @around(Ring, "_update_concat")
    def _(original, self, keys, values):
        made = original(self, keys, values)
        self.offset = min(self.offset, max(self.max_size, keys.shape[2]))
        return made


def ring_chunk_drops_oldest():
    @around(Ring, "_trim")
    def _(original, self, trim_size, v, append=None):
        return original(self, trim_size + int(append is not None and trim_size > 0), v, append)


def batch_ring_order_not_restored():
    @around(BatchRing, "_temporal_order")
    def _(original, self):
        if self.rotated:
            self._idx, self.rotated = self.keys.shape[2], False


def chunk_front_one_too_far():
    @around(Chunked, "maybe_trim_front")
    def _(original, self):
        self.chunk_size -= self.chunk_size > 1
        original(self)
        self.chunk_size += 1


def chunk_front_does_not_count():
    @around(Chunked, "maybe_trim_front")
    def _(original, self):
        start = self.start_position
        original(self)
        if self.start_position > start:
            self.offset -= 1
            self.start_position -= 1


# ---------------------------------------------------------------------------------------- quantization
def scales_of_previous_token():
    @around(Quantized, "update_and_fetch")
    def _(original, self, keys, values):
        made, prev, count = original(self, keys, values), self.offset - keys.shape[2], keys.shape[2]
        if count > 1:
            scales = self.keys[1][..., prev: prev + count, :]
            self.keys[1][..., prev: prev + count, :] = mx.roll(scales, 1, axis=2)
            made = self.keys_and_values()
        return made


def value_biases_of_keys():
    @around(Quantized, "update_and_fetch")
    def _(original, self, keys, values):
        made = original(self, keys, values)
        if self.keys[2].shape == self.values[2].shape:
            prev = self.offset - keys.shape[2]
            self.values[2][..., prev: self.offset, :] = self.keys[2][..., prev: self.offset, :]
            made = self.keys_and_values()
        return made


def quantized_trim_ignored():
    @around(Quantized, "trim")
    def _(original, self, n):
        offset = self.offset
        trimmed = original(self, n)
        self.offset = offset
        return trimmed


def to_quantized_drops_last():
    @around(KV, "to_quantized")
    def _(original, self, group_size=64, bits=4):
        made = original(self, group_size=group_size, bits=bits)
        made.offset = max(0, made.offset - 1)
        return made


# ------------------------------------------------------------------------------------------------ trim
def trim_one_too_many():
    @around(KV, "trim")
    def _(original, self, n):
        trimmed = original(self, n)
        if trimmed > 0 and self.offset > 0:
            self.offset -= 1
        return trimmed


def trim_says_what_was_asked():
    @around(KV, "trim")
    def _(original, self, n):
        original(self, n)
        return n


def batch_trim_keeps_offsets():
    @around(Batch, "trim")
    def _(original, self, n):
        offset = self.offset
        trimmed = original(self, n)
        self.offset = offset
        return trimmed


def batch_ring_trim_keeps_place():
    @around(BatchRing, "trim")
    def _(original, self, n):
        place = self._idx
        trimmed = original(self, n)
        self._idx = place
        return trimmed


# ------------------------------------------------------------------------------------------------ rows
def merge_in_storage_order():
    @around(BatchRing, "merge")
    def _(original, caches):
        order = Ring._temporal_order
        Ring._temporal_order = lambda self, v: v if v.shape[2] >= self.size() else order(self, v)
        try:
            return original(caches)
        finally:
            Ring._temporal_order = order
    BatchRing.merge = staticmethod(BatchRing.merge)


def merge_pads_values_right():
    @around(Batch, "merge")
    def _(original, caches):
        made = original(caches)
        lengths = [c.size() for c in caches]
        if made.values is not None and min(lengths) < max(lengths):
            rows = [mx.roll(made.values[i: i + 1], n - max(lengths), axis=2) for i, n in enumerate(lengths)]
            made.values = mx.concatenate(rows)
        return made
    Batch.merge = staticmethod(Batch.merge)


def filter_does_not_permute():
    @around(Batch, "filter")
    def _(original, self, batch_indices):
        return original(self, sorted(batch_indices))


def filter_keeps_first_padding():
    @around(BatchRing, "filter")
    def _(original, self, batch_indices):
        padding = self.left_padding
        original(self, batch_indices)
        if 0 < len(batch_indices) <= padding.shape[0]:
            self.left_padding = padding[: len(batch_indices)]


def extend_takes_own_offset():
    @around(Batch, "extend")
    def _(original, self, other):
        rows = self.offset.shape[0]
        original(self, other)
        first, second = self.offset[:rows], self.offset[rows:]
        if rows > 0 and second.shape[0] > 0:
            self.offset = mx.concatenate([first, mx.minimum(second, first[0])])


def extend_drops_padding():
    @around(BatchRing, "extend")
    def _(original, self, other):
        rows = self.offset.shape[0]
        own = self.left_padding
        original(self, other)
        if self.keys is not None and rows > 0:
            self.left_padding = mx.concatenate([own, self.left_padding[rows:]])


def extract_takes_a_padding_column():
    @around(Batch, "extract")
    def _(original, self, idx):
        kept = self.left_padding
        self.left_padding = mx.maximum(kept - 1, 0)
        made = original(self, idx)
        self.left_padding = kept
        return made


def extract_does_not_unroll():
    @around(BatchRing, "extract")
    def _(original, self, idx):
        rotated, place = self.rotated, self._idx
        if rotated:
            self.rotated, self._idx = False, self.keys.shape[2]
        made = original(self, idx)
        self.rotated, self._idx = rotated, place
        return made


def finalize_rolls_keys_alone():
    @around(Batch, "finalize")
    def _(original, self):
        values = self.values
        original(self)
        self.values = values


def prefill_padding_one_too_many():
    @around(Batch, "prepare")
    def _(original, self, *, right_padding=None, **named):
        if right_padding is not None:
            right_padding = [n + 1 if 0 < n < max(right_padding) else n for n in right_padding]
        return original(self, right_padding=right_padding, **named)


# ------------------------------------------------------------------------------------ copies and files
def load_counts_capacity():
    def change(self):
        self.offset = 0 if self.keys is None else self.keys.shape[2]
    set_state(KV, change)


def load_forgets_rotation():
    def change(self):
        if self.keys is not None:
            self._idx = min(self.keys.shape[2], self.max_size)
    set_state(Ring, change)


def load_forgets_keep():
    def change(self):
        self.keep = 0
    set_state(Ring, change)


def copy_shares_arrays():
    def __deepcopy__(self, memo):
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made
    KV.__deepcopy__ = __deepcopy__


# ------------------------------------------------------------------------------------------- attention
def sinks_are_ignored():
    @around(base, "scaled_dot_product_attention")
    def _(original, *args, sinks=None, **named):
        return original(*args, sinks=None, **named)


def quantized_mask_top_left():
    @around(base, "quantized_scaled_dot_product_attention")
    def _(original, queries, q_keys, q_values, scale, mask, **named):
        if isinstance(mask, str) and q_keys[0].shape[-2] > queries.shape[-2] > 1:
            mask = mx.arange(queries.shape[-2])[:, None] >= mx.arange(q_keys[0].shape[-2])[None]
        return original(queries, q_keys, q_values, scale, mask, **named)


FAULTS = {f.__name__: f for f in (
    window_one_too_wide, window_one_too_narrow, ring_mask_one_too_wide, batch_mask_shows_padding, batch_ring_mask_not_rolled,
    growth_loses_last_token, batch_growth_forgets_values, ring_wraps_over_kept, ring_wraps_a_slot_late,
    ring_offset_stops_at_window, ring_chunk_drops_oldest, batch_ring_order_not_restored, chunk_front_one_too_far,
    chunk_front_does_not_count, scales_of_previous_token, value_biases_of_keys, quantized_trim_ignored,
    to_quantized_drops_last, trim_one_too_many, trim_says_what_was_asked, batch_trim_keeps_offsets,
    batch_ring_trim_keeps_place, merge_in_storage_order, merge_pads_values_right, filter_does_not_permute,
    filter_keeps_first_padding, extend_takes_own_offset, extend_drops_padding, extract_takes_a_padding_column,
    extract_does_not_unroll, finalize_rolls_keys_alone, prefill_padding_one_too_many, load_counts_capacity,
    load_forgets_rotation, load_forgets_keep, copy_shares_arrays, sinks_are_ignored, quantized_mask_top_left)}


def apply(names):
    unknown = set(names) - FAULTS.keys()
    if unknown:
        raise SystemExit(f"no fault {', '.join(sorted(unknown))}")
    for name in names:
        FAULTS[name]()
