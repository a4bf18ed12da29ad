"""An adapter: it puts a KV cache before kvcheck.

    kvcheck fuzz --impl NEW_ADAPTER.py --cases 1000    # draws sequences of operations, and shrinks one that fails
    kvcheck gate --impl NEW_ADAPTER.py                 # the same for CI, with reports

It passes as it stands, because StandIn is a small right cache in numpy. Put your own in its place; then take away from
SPACES, or add to it and to the methods, until they say what your cache has. Every method that an adapter may have, with its
arguments: `python3 -c "import kvcheck_adapter; help(kvcheck_adapter.Adapter)"`.
"""
import numpy as np
from kvcheck_adapter import Adapter, to_float32


class StandIn:
    """The cache under test: a batch of sequences, each behind its own left padding, in any format. Delete it, and import
    yours. planes_of_k, planes_of_v: what encodes vectors, (rows, heads, columns, channels), into the arrays that are stored."""

    def __init__(self, planes_of_k, planes_of_v, padding):
        self.planes_of_k, self.planes_of_v = planes_of_k, planes_of_v
        self.start = list(padding)  # the column of each row where its tokens begin
        self.columns = 0
        self.k = self.v = None  # tuples of arrays, (rows, heads, columns, *)

    def update(self, k, v):
        added = self.planes_of_k(k), self.planes_of_v(v)
        if self.columns == 0:
            self.k, self.v = added
        else:
            self.k, self.v = (tuple(np.concatenate(pair, axis=2) for pair in zip(old, new))
                              for old, new in zip((self.k, self.v), added))
        self.columns += k.shape[2]
        return self.k, self.v

    def mask(self, queries):
        """(rows, 1, queries, columns): causal, and no padding."""
        column, at = np.arange(self.columns), np.arange(self.columns - queries, self.columns)
        causal = column[None, :] <= at[:, None]
        return causal[None, None] & (column >= np.array(self.start, int).reshape(-1, 1, 1, 1))

    def change(self, f):
        """Every stored array becomes f of it."""
        if self.columns > 0:
            self.k, self.v = (tuple(f(array) for array in arrays) for arrays in (self.k, self.v))

    def trim(self, count):
        count = min(count, min((max(0, self.columns - start) for start in self.start), default=0))
        self.columns -= count
        self.change(lambda array: array[:, :, :array.shape[2] - count])
        return count

    def filter(self, rows):
        self.start = [self.start[row] for row in rows]
        self.change(lambda array: array[np.array(rows, int)])


def linear_space(**more):
    """What is drawn for this cache. A key that is left out means that everything is there (the list of keys:
    tools/process/protocol.md, "spaces")."""
    return {"kind": "cache",
            "layouts": ["linear"],  # no windows or rings: linear:w, ring, ring:keep, chunk
            "x": ["f32", "f16", "bf16"],  # types of the vectors that are appended
            "rows": "any",  # batches; "single": caches of one row
            "padding": True,  # rows of a batch may begin with padding
            "operations": ["new", "append", "trim", "filter", "copy", "drop"],
            **more}


class NewAdapter(Adapter):
    name, version = "new-adapter", "1"  # printed with every verdict
    spaces = [
        linear_space(formats=["f32", "f16", "bf16"], same_format=True, stored_as_given=True),  # stored in the type of x
        linear_space(formats=["affine:4:g32:*", "affine:8:g32:*"], same_format=True, scales="x"),  # codes, scales, biases
    ]
    # Wrong calls that the cache leaves to its callers: they never reach it, and nothing is claimed about them. Take a word
    # away, and kvcheck makes such calls: each must raise and change nothing.
    relies_on = {"counts",   # trim of a negative number
                 "rows",     # filter of rows that are not there
                 "columns",  # append of another shape or type
                 "padding"}  # one number for each row, none negative

    def new(self, layout, k, v, rows, padding):
        """An empty cache. layout.kind, k.text ("f16", "affine:4:g32:f16"), v.text; padding: a number for each row, or []."""
        def planes(form):
            # Columns of padding hold NaN, so that a cache which reads them is found out.
            return lambda x: form.encode(np.nan_to_num(to_float32(x, self.setup.x)))
        return StandIn(planes(k), planes(v), padding or [0] * rows)

    def append(self, cache, k, v):
        """Stores K and V, and returns what attention would get: (keys, values, mask). Of a plain format keys is one array;
        of a coded one the tuple of its planes. The mask may be None, "causal", booleans, or floats that are added."""
        keys, values = cache.update(k, v)
        return keys, values, cache.mask(k.shape[2])

    def trim(self, cache, count):
        return cache.trim(count)

    def filter(self, cache, rows):
        cache.filter(rows)

    def tell(self, cache):
        """What the cache says of itself; what is left out is not judged."""
        return {"rows": len(cache.start),
                "offsets": [max(0, cache.columns - start) for start in cache.start],
                "unfed": [max(0, start - cache.columns) for start in cache.start]}
