"""A cache of one array per sequence that can be asked what it retains; --views returns views of arrays that it writes
into, --silent does not say what it retains, --stays keeps its rows when filter takes none, --accepts rows that are not
there and then tells numbers of one row more than it has, --loses one token more than it trims. What append returns does
not fit together under --wide-mask and --short-values; under --refuses it does not append, and says words of a mask."""
import numpy as np

from kvcheck_adapter import Adapter

COLUMNS = 64


class Telling(Adapter):
    name, version = "telling", "1"
    spaces = [{"kind": "cache", "layouts": ["linear"], "formats": ["f32"], "x": ["f32"], "padding": False,
               "operations": ["new", "append", "trim", "filter", "copy", "attend", "drop"]}]

    def __init__(self, *options):
        self.options = options
        if "--silent" in options:
            type(self).retained = Adapter.retained

    def new(self, layout, k, v, rows, padding):
        s = self.setup
        return {"k": np.zeros((rows, s.kv_heads, COLUMNS, s.k_dim), np.float32),
                "v": np.zeros((rows, s.kv_heads, COLUMNS, s.v_dim), np.float32), "length": 0}

    def append(self, cache, k, v):
        end = cache["length"] + k.shape[2]
        for name, given in (("k", k), ("v", v)):
            if given.shape != (cache[name].shape[0], cache[name].shape[1], k.shape[2], cache[name].shape[3]):
                raise ValueError("columns of another shape")
            if given.dtype != np.float32:
                raise TypeError("columns of another type")
        for name, given in (("k", k), ("v", v)):
            cache[name][:, :, cache["length"]:end] = given
        cache["length"] = end
        shown = cache["k"][:, :, :end], cache["v"][:, :, :end]
        if "--refuses" in self.options:
            raise ValueError("the mask covers 4 columns, K and V have 3")
        if "--wide-mask" in self.options:
            return *shown, np.ones((1, 1, k.shape[2], end + 1), bool)
        if "--short-values" in self.options:
            return shown[0], shown[1][:, :, :end - 1], "causal"
        return *(shown if "--views" in self.options else (part.copy() for part in shown)), "causal"

    def prepare(self, cache, lengths, columns):
        cache["pending"] = True

    def trim(self, cache, count):
        if count < 0:
            raise ValueError("a negative number of tokens")
        count = min(count, cache["length"]) if len(cache["k"]) else 0
        cache["length"] -= count
        if "--loses" in self.options and count and cache["length"]:
            cache["length"] -= 1
        return count

    def filter(self, cache, rows):
        wanted = np.array(rows)  # a list of none as well
        if "--accepts" in self.options and 9 in rows:
            cache["more"] = 1
            return
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(cache["k"])):
            raise IndexError("a row that is not there")
        if not len(wanted) and "--stays" in self.options:
            return
        cache["k"], cache["v"] = cache["k"][wanted], cache["v"][wanted]

    def retained(self, cache):
        shown = (cache[name][:, :, :cache["length"]] for name in ("k", "v"))
        return *shown, np.ones((len(cache["k"]), cache["length"]), bool)

    def tell(self, cache):
        rows = len(cache["k"])
        if "more" in cache:
            return {"rows": rows, "unfed": [0] * (rows + 1)}
        if "--loses" in self.options:
            return {}
        return {"offsets": [cache["length"]] * rows, "unfed": [0] * rows, "size": cache["length"] if rows else 0}
