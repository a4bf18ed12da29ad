"""A plain KV cache in numpy: each row of a batch keeps the K and V of its tokens, oldest first, with their positions.

Nothing is fast here and nothing is clever: what a query sees is computed from positions, so that linear caches, windows,
rings and chunks, batches with padding on either side, and everything done to them are one piece of code. Wrong calls
raise ValueError before anything changes.
"""
import hashlib
import io

import numpy as np

MAGIC, VERSION = b"rows-cache", 1


class Rule:
    """Which tokens a query sees: kind, window W, kept tokens, chunk length."""

    def __init__(self, kind, window=None, keep=0, chunk=None):
        if kind not in ("linear", "ring", "chunk") or (kind == "ring" and not window) or (kind == "chunk" and not chunk):
            raise ValueError(f"no rule {kind} with window {window}, chunk {chunk}")
        if (window is not None and window < 1) or keep < 0 or (window is not None and keep >= window):
            raise ValueError("a window has at least one token beside those it keeps")
        self.kind, self.window, self.keep, self.chunk = kind, window, keep, chunk

    def __eq__(self, other):
        return vars(self) == vars(other)

    def seen(self, token, query):
        """Arrays of positions, or numbers. A window of a ring counts the kept tokens in."""
        seen = token <= query
        if self.kind == "chunk":
            seen = seen & (token // self.chunk == query // self.chunk)
        elif self.window is not None:
            seen = seen & ((token > query - (self.window - self.keep)) | (token < self.keep))
        return seen


class Row:
    def __init__(self, k, v, padding=0):
        self.k, self.v = k, v  # (heads, tokens, channels)
        self.positions = np.zeros(0, np.int64)
        self.offset = 0
        self.padding = padding  # columns still to come that are none of its tokens

    def copy(self):
        made = Row(self.k.copy(), self.v.copy(), self.padding)
        made.positions, made.offset = self.positions.copy(), self.offset
        return made

    def take(self, k, v):
        count = k.shape[1]
        self.k, self.v = np.concatenate([self.k, k], axis=1), np.concatenate([self.v, v], axis=1)
        self.positions = np.append(self.positions, np.arange(self.offset, self.offset + count))
        self.offset += count

    def forget(self, stays):
        self.k, self.v, self.positions = self.k[:, stays], self.v[:, stays], self.positions[stays]

    def can_lose(self, count, rule):
        """Whether all is still there that the query after offset - count tokens would see."""
        offset = self.offset - count
        if offset < 0:
            return False
        needed = [t for t in range(offset) if rule.seen(t, offset)]
        return offset == 0 or set(needed) <= set(self.positions.tolist())


class RowsCache:
    """heads, k_dim, v_dim, dtype: of what is stored; padding: per row, columns of its first ones that are no tokens."""

    def __init__(self, rule, heads, k_dim, v_dim, dtype, rows, padding=()):
        if padding and (len(padding) != rows or min(padding) < 0):
            raise ValueError("padding needs one number per row, none negative")
        self.rule, self.heads, self.k_dim, self.v_dim, self.dtype = rule, heads, k_dim, v_dim, np.dtype(dtype)
        self.rows = [self._empty_row(n) for n in (padding or [0] * rows)]
        self.to_come = None  # tokens of a prepared prefill, per row

    def _empty_row(self, padding=0):
        return Row(np.zeros((self.heads, 0, self.k_dim), self.dtype), np.zeros((self.heads, 0, self.v_dim), self.dtype),
                   padding)

    def _like(self, rows):
        made = RowsCache(self.rule, self.heads, self.k_dim, self.v_dim, self.dtype, 0)
        made.rows = rows
        return made

    def _idle(self):
        if self.to_come is not None:
            raise ValueError("a prepared prefill is not finalized")

    def append(self, k, v):
        """(K, V, mask) as attention takes them: (rows, heads, columns, channels), and (rows, 1, queries, columns)."""
        columns = k.shape[2]
        shape = (len(self.rows), self.heads, columns)
        if k.shape != (*shape, self.k_dim) or v.shape != (*shape, self.v_dim) or {k.dtype, v.dtype} != {self.dtype}:
            raise ValueError(f"columns of {k.shape}, {v.shape} do not fit a cache of {len(self.rows)} rows")
        first = []  # the column of each row where its tokens begin
        for b, row in enumerate(self.rows):
            self._forget_what_nobody_sees(row)
            padding = min(row.padding, columns)
            count = columns - padding if self.to_come is None else min(columns - padding, self.to_come[b])
            row.padding -= padding
            first.append((padding, count, row.offset))
            row.take(k[b, :, padding:padding + count], v[b, :, padding:padding + count])
            if self.to_come is not None:
                self.to_come[b] -= count
        return self._shown(columns, first)

    def _forget_what_nobody_sees(self, row):
        row.forget(self.rule.seen(row.positions, row.offset))

    def _shown(self, columns, first):
        widest = max((len(row.positions) for row in self.rows), default=0)
        keys = np.zeros((len(self.rows), self.heads, widest, self.k_dim), self.dtype)
        values = np.zeros((len(self.rows), self.heads, widest, self.v_dim), self.dtype)
        mask = np.zeros((len(self.rows), 1, columns, widest), bool)
        for b, (row, (padding, count, offset)) in enumerate(zip(self.rows, first)):
            held = len(row.positions)
            keys[b, :, :held], values[b, :, :held] = row.k, row.v
            queries = np.arange(offset, offset + count)[:, None]
            mask[b, 0, padding:padding + count, :held] = self.rule.seen(row.positions, queries)
        return keys, values, mask

    def prepare(self, lengths):
        self._idle()
        if len(lengths) != len(self.rows) or any(n < 0 for n in lengths):
            raise ValueError("prepare needs one length per row, none negative")
        self.to_come = list(lengths)

    def finalize(self):
        if self.to_come is not None and any(self.to_come):
            raise ValueError("tokens of the prepared prefill have not arrived")
        self.to_come = None

    def trim(self, count):
        """The newest tokens of every row go: as many of `count` as all rows can lose. Returns how many."""
        self._idle()
        if count < 0:
            raise ValueError("a negative number of tokens")
        least = min((row.offset for row in self.rows), default=0)
        lost = next(n for n in range(min(count, least), -1, -1)
                    if all(row.can_lose(n, self.rule) for row in self.rows))
        for row in self.rows:
            row.offset -= lost
            row.forget(row.positions < row.offset)
        return lost

    def filter(self, indices):
        self._idle()
        self._check_rows(indices)
        self.rows = [self.rows[i].copy() for i in indices]

    def _check_rows(self, indices):
        if any(not 0 <= i < len(self.rows) for i in indices):
            raise ValueError(f"a row that is not there; the cache has {len(self.rows)}")

    def _check_alike(self, other):
        other._idle()
        if self.rule != other.rule or self.dtype != other.dtype:
            raise ValueError("caches of different rules or types")

    def extend(self, other):
        self._idle()
        self._check_alike(other)
        self.rows = self.rows + [row.copy() for row in other.rows]

    @staticmethod
    def merge(caches):
        for cache in caches:
            cache._idle()
            caches[0]._check_alike(cache)
            if len(cache.rows) != 1:
                raise ValueError("merge takes caches of one row")
        return caches[0]._like([cache.rows[0].copy() for cache in caches])

    def extract(self, index):
        self._idle()
        self._check_rows([index])
        row = self.rows[index].copy()
        row.padding = 0
        return self._like([row])

    def copy(self):
        self._idle()
        return self._like([row.copy() for row in self.rows])

    # --------------------------------------------------------------------------------- a file of its own
    def to_bytes(self):
        self._idle()
        arrays = {"shape": np.array([self.heads, self.k_dim, self.v_dim, len(self.rows)])}
        rule = self.rule
        arrays["rule"] = np.array([rule.kind, str(rule.window), str(rule.keep), str(rule.chunk), self.dtype.str])
        for b, row in enumerate(self.rows):
            arrays.update({f"k{b}": row.k, f"v{b}": row.v, f"positions{b}": row.positions,
                           f"numbers{b}": np.array([row.offset, row.padding])})
        packed = io.BytesIO()
        np.savez(packed, **arrays)
        body = bytes([VERSION]) + packed.getvalue()
        return MAGIC + hashlib.sha256(body).digest() + body

    @staticmethod
    def from_bytes(data):
        body = data[len(MAGIC) + 32:]
        if not data.startswith(MAGIC):
            raise ValueError("not a file of a rows cache")
        if hashlib.sha256(body).digest() != data[len(MAGIC):len(MAGIC) + 32]:
            raise ValueError("a damaged file")
        if body[0] != VERSION:
            raise ValueError(f"a file of version {body[0]}; this is version {VERSION}")
        arrays = np.load(io.BytesIO(body[1:]))
        kind, window, keep, chunk, dtype = arrays["rule"].tolist()
        rule = Rule(kind, *(None if n == "None" else int(n) for n in (window, keep, chunk)))
        heads, k_dim, v_dim, count = arrays["shape"].tolist()
        made = RowsCache(rule, heads, k_dim, v_dim, dtype, 0)
        for b in range(count):
            row = Row(arrays[f"k{b}"], arrays[f"v{b}"])
            row.positions = arrays[f"positions{b}"]
            row.offset, row.padding = arrays[f"numbers{b}"].tolist()
            made.rows.append(row)
        return made
