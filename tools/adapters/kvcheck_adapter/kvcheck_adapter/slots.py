"""Caches by number, and the state that each one shows.

After an append a cache shows what the append returned, with what each query sees. At other times a probe is asked: one
column of the value 3, which no token's channel reaches (|value| < 2), is appended to a copy; what its query sees, and is
not the probe, is what the cache retains for the next query. An adapter that overrides `retained` is asked instead, also
between the appends of a prepared prefill, where no probe is.
"""
from typing import NamedTuple

import numpy as np

from .adapter import Adapter, Unsupported
from .masks import visible_of
from .storage import STORED, from_float32, name_of

PROBE = 3.0


class Family:
    """Caches that may share storage: a change of one may show in another, so their states are shown anew. Unites as a
    union-find structure; version counts changes of all members."""
    __slots__ = ("_parent", "_version")

    def __init__(self):
        self._parent, self._version = None, 0

    def _root(self):
        root = self
        while root._parent is not None:
            root = root._parent
        return root

    def join(self, other):
        mine, others = self._root(), other._root()
        if mine is not others:
            mine._version = max(mine._version, others._version) + 1
            others._parent = mine

    @property
    def version(self):
        return self._root()._version

    @version.setter
    def version(self, value):
        self._root()._version = value


class Slot:
    __slots__ = ("cache", "layout", "k", "v", "rows", "family", "padding", "to_come", "given", "step", "fresh",
                 "shown", "shown_version", "results", "results_version")

    def __init__(self, cache, layout, k, v, rows, family):
        self.cache, self.layout, self.k, self.v, self.rows, self.family = cache, layout, k, v, rows, family
        self.padding = []  # columns of padding still to be fed, per row; [] none
        self.to_come = None  # tokens of a prepared prefill still to be fed, per row
        self.given = ()  # the arrays of the last append, each with the bytes that it held
        self.step = None
        self.fresh = False  # nothing was ever fed, to it or to what it was made of
        self.shown, self.shown_version = None, -1
        self.results, self.results_version = [], -1  # what calls returned last, with its bytes

    def unfed(self):
        return self.padding or [0] * self.rows

    def arrived(self, columns):
        """Columns of an append: padding first, then tokens."""
        if not self.padding and self.to_come is None:
            return
        unfed = self.unfed()
        if self.to_come is not None:
            self.to_come = [max(0, n - max(0, columns - p)) for n, p in zip(self.to_come, unfed)]
        self.padding = [max(0, p - columns) for p in unfed]


def show(session, slots):
    """Packs the states of those that have changed since: slot.shown. What is to be computed for them is computed at
    once."""
    adapter, changed, arrays, caches = session.adapter, [], [], []
    for slot in slots:
        version = slot.family.version
        if slot.shown_version == version:
            continue
        shown = slot.step
        if shown is None and slot.rows > 0 and not slot.fresh:
            shown = retained(session, slot)
            # A column of a probe would be one of the prefill's, or change what is stored.
            if shown is None and slot.to_come is None and not (slot.k.codes_later or slot.v.codes_later):
                shown = probed(session, slot)
        changed.append((slot, version, shown))
        if shown is not None:
            arrays += shown.k
            arrays += shown.v
            if shown.mask is not None and not isinstance(shown.mask, (str, np.ndarray)):
                arrays.append(shown.mask)
            caches.append(slot.cache)
    if arrays:
        adapter.ready(arrays, caches)
    for slot, version, shown in changed:
        slot.shown = session.stream.pack(state_of(session, slot, shown))
        slot.shown_version = version


def state_of(session, slot, shown):
    """shown: the last append, or a probe, or None."""
    adapter = session.adapter
    told = session.call(adapter.tell, slot.cache)
    state = {"rows": slot.rows, "queries": 0}
    state.update(told)
    # Another number of rows than there should be is for kvcheck to judge; arrays of `rows` rows are then none.
    lengths = {len(told[name]) for name in ("offsets", "unfed", "held") if told.get(name) is not None}
    if "rows" not in told and len(lengths) == 1 and lengths != {slot.rows}:
        state["rows"] = lengths.pop()
    if state["rows"] != slot.rows:
        return {name: state[name] for name in ("rows", "queries", "layout", "k_format", "v_format") if name in state}
    if shown is not None:
        array = shown.mask is not None and not isinstance(shown.mask, (str, np.ndarray))
        fill(state, adapter, slot, shown, adapter.numpy(shown.mask) if array else shown.mask)
    elif slot.fresh and slot.to_come is None:
        nothing_fed(state, session.setup, slot)
    if "k" not in state and "size=columns" in adapter.cache_profile:
        state.pop("size", None)  # a number of columns is compared with those that are shown
    return state


def wired(arrays, fmt):
    """The wire's arrays of K or V: one per plane, or values in their place."""
    kinds = fmt.kinds.values() if len(arrays) == len(fmt.kinds) else (fmt.type,)
    return [[name_of(array, kind), list(array.shape), array.tobytes()] for array, kind in zip(arrays, kinds)]


def fill(state, adapter, slot, step, mask):
    """K, V, and what is seen of them; step: the last append, or a probe."""
    numpy = adapter.numpy
    k, v = [numpy(part) for part in step.k], [numpy(part) for part in step.v]
    state["k"], state["v"] = wired(k, slot.k), wired(v, slot.v)
    if isinstance(step, Retained):
        state["retained"] = ["b8", list(mask.shape), mask.tobytes()]
        return
    visible = visible_of(mask, slot.rows, step.queries, k[0].shape[2])
    if step is slot.step:
        state["queries"] = step.queries
        state["visible"] = ["b8", list(visible.shape), visible.tobytes()]
    else:
        retained = visible[:, 0] & ~is_probe(k, slot.k)
        state["retained"] = ["b8", list(retained.shape), retained.tobytes()]
        state["probed"] = True


def nothing_fed(state, setup, slot):
    for name, fmt, dim in (("k", slot.k, setup.k_dim), ("v", slot.v, setup.v_dim)):
        shapes = fmt.of_token.shapes(dim, (slot.rows, setup.kv_heads, 0))
        state[name] = [[plane.kind, shape, b""] for plane, shape in zip(fmt.of_token.planes(dim), shapes)]
    state["retained"] = ["b8", [slot.rows, 0], b""]


_PROBES = {}


def probe_columns(setup, rows):
    key = (setup.x, rows, setup.kv_heads, setup.k_dim, setup.v_dim)
    arrays = _PROBES.get(key)
    if arrays is None:
        arrays = tuple(from_float32(np.full((rows, setup.kv_heads, 1, dim), PROBE, np.float32), setup.x)
                       for dim in (setup.k_dim, setup.v_dim))
        _PROBES[key] = arrays
    return arrays


class Retained(NamedTuple):
    """What the adapter says that the cache retains: mask (rows, columns)."""
    k: object
    v: object
    mask: object


def retained(session, slot):
    """None where the adapter does not say."""
    adapter = session.adapter
    if type(adapter).retained is Adapter.retained:
        return None
    try:
        keys, values, held = session.call(adapter.retained, slot.cache)
    except Unsupported:
        return None
    mask = np.array(held if isinstance(held, (np.ndarray, list)) else adapter.numpy(held), bool)
    made = Retained(session.kept(keys), session.kept(values), mask)
    columns = {part.shape[2] for part in (*made.k, *made.v)}
    rows = {part.shape[0] for part in (*made.k, *made.v)}
    if len(columns) != 1 or len(rows) != 1 or mask.shape != (*rows, *columns):
        raise ValueError(f"retained: {sorted(columns)} columns of {sorted(rows)} rows, said to be held {mask.shape}")
    # Rows of another number are for kvcheck to judge, after the operation that made them.
    if rows != {slot.rows}:
        return None
    return made


def probed(session, slot):
    """The append of a probe to a copy. Where the library raises, it tells nothing: the next append will raise too."""
    adapter, x = session.adapter, session.setup.x
    try:
        copied = adapter.probe_copy(slot.cache)
        k, v = (adapter.give(array.copy(), x) for array in probe_columns(session.setup, slot.rows))
        return session.step_of(adapter.append(copied, k, v), 1, slot)
    except Exception as error:
        if session.mistaken(error):
            raise
        return None


_MARKS = {}


def is_probe(parts, fmt):
    """Which columns of K hold the probe, (rows, columns)."""
    array = parts[0]
    shows_values = len(parts) == 1 and array.dtype.kind == "f"
    if not fmt.is_plain and not shows_values:
        return (fmt.of_token.level(parts) > 2.5).all((1, 3))
    if STORED.get(fmt.type) != array.dtype:
        return (np.asarray(array, np.float32) > 2.5).all((1, 3))
    mark = _MARKS.get(fmt.type)
    if mark is None:
        mark = _MARKS[fmt.type] = from_float32(np.float32([PROBE]), fmt.type)[0]
    return (array == mark).all((1, 3))
