"""Repairs of the causes of FINDINGS.md, put into the library of this process: with them drawn cases pass (--patched)."""
import copy

import mlx.core as mx
from mlx_vlm import turboquant as library

SINGLE, BATCH = library.TurboQuantKVCache, library.BatchTurboQuantKVCache


def refuse_unless(condition, what):
    if not condition:
        raise ValueError(what)


def rows_that_are_there():
    def checked(method):
        def call(self, rows, *rest):
            asked = rows.tolist() if isinstance(rows, mx.array) else [rows]
            refuse_unless(all(0 <= row < self.batch_size for row in asked), "a row that is not there")
            return method(self, rows, *rest)
        return call

    BATCH.filter, BATCH.extract = checked(BATCH.filter), checked(BATCH.extract)


def tokens_of_the_shortest_row():
    trimmed = BATCH.trim

    def trim(self, count):
        offsets = self.offset.tolist()
        return trimmed(self, min(count, max(0, min(offsets, default=0))))

    BATCH.trim = trim


def counts_of_at_least_none():
    for kind in (SINGLE, BATCH):
        def trim(self, count, trimmed=kind.trim):
            refuse_unless(count >= 0, "a negative number of tokens")
            return trimmed(self, count)

        kind.trim = trim


def columns_of_the_same_shape():
    for kind in (SINGLE, BATCH):
        def update_and_fetch(self, keys, values, update=kind.update_and_fetch):
            refuse_unless(keys.shape[:3] == values.shape[:3], "K and V of different shapes")
            if self.keys is not None:
                norms = [state.low.norms if isinstance(state, library.TurboQuantSplitState) else state.norms
                         for state in (self.keys, self.values)]
                refuse_unless(keys.shape[:2] == norms[0].shape[:2] and keys.shape[-1] == self.key_codec.dim
                              and values.shape[-1] == self.value_codec.dim, "columns of another shape")
            return update(self, keys, values)

        kind.update_and_fetch = update_and_fetch


def codes_of_one_kind():
    extended = BATCH.extend

    def extend(self, other):
        same = all(getattr(self, name) == getattr(other, name) for name in ("key_bits", "value_bits", "seed"))
        refuse_unless(same, "codes of other bits or signs")
        for name in ("key_codec", "value_codec"):
            own, its = getattr(self, name), getattr(other, name)
            refuse_unless(own is None or its is None or library._codecs_compatible(own, its), "codes of other channels")
        if (self.keys is None) != (other.keys is None):  # rows without tokens have no arrays, and are rows all the same
            empty, filled = (self, other) if self.keys is None else (other, self)
            if empty is other:
                other = empty = copy.copy(other)
            empty.keys, empty.values = (library._map_state(
                state, lambda array, rank: mx.zeros((empty.batch_size, array.shape[1], 0, *array.shape[3:]), array.dtype))
                for state in (filled.keys, filled.values))
        extended(self, other)
        for name in ("key_codec", "value_codec"):  # of rows that came to an empty batch
            if getattr(self, name) is None:
                setattr(self, name, getattr(other, name))

    BATCH.extend = extend


def windows_of_a_token():
    for kind in (SINGLE, BATCH):
        def make_mask(self, *arguments, mask=kind.make_mask, **options):
            window = options.get("window_size")
            refuse_unless(window is None or window >= 1, "a window holds at least a token")
            return mask(self, *arguments, **options)

        kind.make_mask = make_mask


REPAIRS = (rows_that_are_there, tokens_of_the_shortest_row, counts_of_at_least_none, columns_of_the_same_shape,
           codes_of_one_kind, windows_of_a_token)


def apply(names=()):
    """All of them, or those of these names."""
    for repair in REPAIRS:
        if not names or repair.__name__ in names:
            repair()
