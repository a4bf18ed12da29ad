"""Traces driven through the caches of mlx-lm, and what they show after every operation.

Nothing is judged here and nothing is repaired: a call is the library's own, an answer is what the library gave, and
what it cannot tell is said to be unknown. How its words map to those of the contract (reference/cache/contract.md):

    new              KVCache, RotatingKVCache, QuantizedKVCache, ChunkedKVCache for one row without `pad=`;
                     BatchKVCache, BatchRotatingKVCache for several rows or with it
    append           base.create_attention_mask, then update_and_fetch; for ChunkedKVCache what models/llama4.py does:
                     maybe_trim_front and a mask over [start_position, offset + N)
    prepare          prepare(lengths=, right_padding=) as generate.py does, with as many columns as the trace feeds
    trim             trim_prompt_cache
    save, load       save_prompt_cache, load_prompt_cache
    copy             copy.deepcopy
    attend           base.scaled_dot_product_attention with the mask of the library for that window
    offset, unfed    the library counts unfed padding as a negative offset, and right padding until finalize: while a
                     prefill is pending it cannot tell
    retained         the columns that the next query sees, asked by appending a probe to a deep copy

An operation that a class does not have is `unsupported`; one that raises is refused, with what it raised.
"""
import copy
import dataclasses
import os

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import base
from mlx_lm.models import cache as library

import make_mlx
import token_rows
from trace_text import layout_of

UNKNOWN = -1
PROBE = 3.0  # beyond every token's channel: |value| < 2
IDLE, DONE, REFUSED, UNSUPPORTED = range(4)
CHANGED_INPUTS = 1  # the caller's arrays
CHANGED_RESULTS = 2  # arrays that the append before it returned


class Unsupported(Exception):
    """The library has no such operation."""


def stored(array):
    """Contiguous numpy; bfloat16 as uint16 bits."""
    return np.ascontiguousarray(make_mlx.from_mlx(array))


def kind_of(dtype):
    return {t: kind for kind, t in make_mlx.TYPES.items()}[dtype]


def parse_format(text):
    """(bits, group, scale kind), or None for a plain type."""
    if not text.startswith("affine:"):
        return None
    _, bits, group, kind = text.split(":")
    return int(bits), int(group[1:]), kind


@dataclasses.dataclass
class Answer:
    status: int = IDLE
    number: int = UNKNOWN  # of trim: tokens said to be gone
    message: str = ""
    changed: int = 0  # CHANGED_INPUTS, CHANGED_RESULTS
    attended: np.ndarray | None = None


@dataclasses.dataclass
class State:
    """What a cache shows. k, v: (codes, scales, biases) or (elements,), each (rows, heads, columns, *); None: nothing."""

    rows: int
    layout: str  # "-": the class does not say
    formats: tuple  # texts of K and V
    columns: int = 0
    queries: int = 0
    k: tuple = ()
    v: tuple = ()
    visible: np.ndarray | None = None  # (rows, queries, columns)
    retained: np.ndarray | None = None  # (rows, columns)
    offsets: tuple = ()  # per row; empty: cannot tell
    unfed: tuple = ()
    size: int = UNKNOWN
    live_bytes: int = UNKNOWN
    capacity_bytes: int = UNKNOWN
    empty: int = UNKNOWN
    trimmable: int = UNKNOWN


@dataclasses.dataclass
class Slot:
    cache: object
    layout: str
    formats: tuple  # as asked for; told where the cache holds no array
    padding: list  # columns of padding still to be fed, per row
    to_come: list | None = None  # tokens of a prepared prefill per row
    step: tuple | None = None  # (k, v, visible, cache before) of the last append

    def copied(self, cache):
        return Slot(cache, self.layout, self.formats, list(self.padding))


def expand(mask, rows, queries, columns):
    """The mask of the library over the returned columns, (rows, queries, columns)."""
    if mask is None:
        return np.ones((rows, queries, columns), bool)
    if isinstance(mask, str):
        assert mask == "causal", mask
        position = np.arange(queries)[:, None] + columns - queries
        return np.broadcast_to(np.arange(columns)[None] <= position, (rows, queries, columns)).copy()
    array = np.array(mask)
    assert array.dtype == np.bool_, array.dtype
    if array.shape[-1] != columns:
        raise ValueError(f"the mask covers {array.shape[-1]} columns, update_and_fetch returned {columns}")
    if array.ndim == 4:
        array = array[:, 0]
    return np.broadcast_to(array, (rows, queries, columns)).copy()


def llama4_mask(cache, queries):
    """models/llama4.py, LlamaModel.__call__."""
    start, offset = cache.start_position, cache.offset
    end = offset + queries
    linds = mx.arange(start, end)
    rinds = mx.arange(offset, end)[:, None]
    block = mx.abs((linds // cache.chunk_size) - (rinds // cache.chunk_size))
    return (block == 0) & (linds <= rinds)


def mask_of(cache, rows, queries, window):
    if isinstance(cache, library.ChunkedKVCache):
        cache.maybe_trim_front()
        return llama4_mask(cache, queries)
    return base.create_attention_mask(mx.zeros((rows, queries, 1)), cache, window_size=window)


def feed(cache, k, v, window):
    """Appends columns: the arrays that attention gets, K and V as tuples, and the expanded mask."""
    rows, _, queries, _ = k.shape
    mask = mask_of(cache, rows, queries, window)
    keys, values = cache.update_and_fetch(k, v)
    keys, values = (tuple(a) if isinstance(a, (tuple, list)) else (a,) for a in (keys, values))
    mx.eval(keys, values)
    return keys, values, expand(mask, rows, queries, keys[0].shape[2])


class Library:
    """The slots of one trace. folder: where saved states go."""

    def __init__(self, setup, operations, folder):
        self.setup, self.operations, self.folder = setup, operations, folder
        self.slots = {}
        self.saved = {}  # key -> Slot without its cache
        self.returned = []  # arrays of the last append, and what they held

    # ------------------------------------------------------------------------------ operations

    def is_idle(self, op):
        if op.kind in ("new", "load"):
            return False
        if op.kind == "merge":
            return any(s not in self.slots for s in op.operands)
        if op.kind == "damage":
            return op.key not in self.saved
        return op.slot not in self.slots or (op.kind == "extend" and op.target not in self.slots)

    def carry_out(self, index):
        op = self.operations[index]
        if self.is_idle(op):
            return Answer()
        answer = Answer(DONE)
        earlier = self.returned
        try:
            getattr(self, "do_" + op.kind)(op, index, answer)
        except (Unsupported, NotImplementedError) as error:
            return Answer(UNSUPPORTED, message=self.explain(error))
        except Exception as error:  # whatever the library raises is its answer
            return Answer(REFUSED, message=self.explain(error))
        if any(stored(array).tobytes() != held for array, held in earlier):
            answer.changed |= CHANGED_RESULTS
        return answer

    def explain(self, error):
        first = (str(error).splitlines() or [""])[0].replace(str(self.folder) + os.sep, "")
        return f"{type(error).__name__}: {first}".encode("ascii", "replace").decode()[:300]

    def do_new(self, op, index, answer):
        layout = op.options.get("layout", self.setup.layout)
        k_format = op.options.get("k", self.setup.k)
        v_format = op.options.get("v", self.setup.v if "k" not in op.options else k_format)
        kind, fields = layout_of(layout)
        single = op.count == 1 and not op.numbers
        padding = list(op.numbers) or [0] * op.count
        coded = parse_format(k_format)
        if k_format != v_format:
            raise Unsupported("K and V are stored in one format")
        if coded:
            if kind != "linear" or any(padding):
                raise Unsupported("QuantizedKVCache is linear, without padding")
            if coded[2] != self.setup.x:
                raise Unsupported("scales have the type of the vectors")
            made = library.QuantizedKVCache(group_size=coded[1], bits=coded[0])
        elif k_format != self.setup.x:
            raise Unsupported("vectors are stored as they are given")
        elif kind == "linear":
            made = library.KVCache() if single else library.BatchKVCache(padding)
        elif kind == "ring" and single:
            made = library.RotatingKVCache(fields["w"], keep=fields.get("keep", 0))
        elif kind == "ring" and not fields.get("keep", 0):
            made = library.BatchRotatingKVCache(fields["w"], padding)
        elif kind == "chunk" and not any(padding):
            made = library.ChunkedKVCache(fields["c"])
        else:
            raise Unsupported("there is no such cache")
        self.slots[op.slot] = Slot(made, layout, (k_format, v_format), padding)

    def columns(self, slot, count, operation):
        """K and V (rows, heads, count, dim) of an append, and how many columns each row takes as padding, as tokens."""
        s, split = self.setup, []
        for row, unfed in enumerate(slot.padding):
            padding = min(unfed, count)
            tokens = count - padding if slot.to_come is None else min(count - padding, slot.to_come[row])
            split.append((padding, tokens))
        arrays = []
        for part, dim in ((token_rows.KEY, s.k_dim), (token_rows.VALUE, s.v_dim)):
            array = token_rows.padding((len(split), s.kv_heads, count, dim), s.x).copy()
            for row, (padding, tokens) in enumerate(split):
                ids = [token_rows.token_id(operation, row, n) for n in range(padding, padding + tokens)]
                if ids:
                    drawn = token_rows.vectors(s.seed, ids, range(s.kv_heads), part, s.x, dim)
                    array[row, :, padding:padding + tokens] = drawn.transpose(1, 0, 2)
            arrays.append(make_mlx.to_mlx(array, s.x))
        return *arrays, split

    def wrong_columns(self, slot, op):
        s, wrong = self.setup, op.options["wrong"]
        rows = len(slot.padding) + (wrong == "rows")
        heads = s.kv_heads + (wrong == "heads")
        kind = s.x if wrong != "type" else ("f16" if s.x == "f32" else "f32")
        return (mx.zeros((rows, heads, op.count, dim + (wrong == name)), make_mlx.TYPES[kind])
                for name, dim in (("k_dim", s.k_dim), ("v_dim", s.v_dim)))

    def do_append(self, op, index, answer):
        slot = self.slots[op.slot]
        window = self.window(slot)
        if "wrong" in op.options:
            feed(slot.cache, *self.wrong_columns(slot, op), window)
            return
        k, v, split = self.columns(slot, op.count, index)
        before = copy.deepcopy(slot.cache)
        given = stored(k).tobytes(), stored(v).tobytes()
        slot.step = (*feed(slot.cache, k, v, window), before)
        answer.changed = CHANGED_INPUTS * (given != (stored(k).tobytes(), stored(v).tobytes()))
        self.returned = [(part, stored(part).tobytes()) for parts in slot.step[:2] for part in parts]
        slot.padding = [p - padding for p, (padding, _) in zip(slot.padding, split)]
        if slot.to_come is not None:
            slot.to_come = [n - tokens for n, (_, tokens) in zip(slot.to_come, split)]

    def do_prepare(self, op, index, answer):
        slot = self.slots[op.slot]
        if not hasattr(slot.cache, "prepare"):
            raise Unsupported(f"{type(slot.cache).__name__} has no prepare")
        if any(slot.padding):
            raise Unsupported("lengths beside unfed left padding: no caller of the library mixes them")
        total = 0
        for later in self.operations[index + 1:]:
            if later.kind == "finalize" and later.slot == op.slot:
                break
            if later.kind == "append" and later.slot == op.slot and "wrong" not in later.options:
                total += later.count
        slot.cache.prepare(lengths=list(op.numbers), right_padding=[total - n for n in op.numbers])
        slot.to_come, slot.step = list(op.numbers), None

    def do_finalize(self, op, index, answer):
        slot = self.slots[op.slot]
        if hasattr(slot.cache, "finalize"):
            slot.cache.finalize()
        if slot.to_come is not None:
            slot.to_come, slot.step = None, None

    def do_trim(self, op, index, answer):
        slot = self.slots[op.slot]
        answer.number = library.trim_prompt_cache([slot.cache], op.count)
        slot.step = None

    def method(self, slot, name):
        if not hasattr(slot.cache, name):
            raise Unsupported(f"{type(slot.cache).__name__} has no {name}")
        return getattr(slot.cache, name)

    def do_filter(self, op, index, answer):
        slot = self.slots[op.slot]
        self.method(slot, "filter")(list(op.numbers))
        slot.padding = [slot.padding[r] for r in op.numbers]
        slot.step = None

    def do_extend(self, op, index, answer):
        slot, other = self.slots[op.slot], self.slots[op.target]
        extend = self.method(slot, "extend")
        if not hasattr(other.cache, "extend"):
            raise Unsupported(f"{type(other.cache).__name__} is no batch")
        extend(other.cache)
        slot.padding = slot.padding + other.padding
        slot.step = None

    def do_merge(self, op, index, answer):
        slots = [self.slots[s] for s in op.operands]
        for slot in slots:
            self.method(slot, "merge")
            if hasattr(slot.cache, "extend"):
                raise Unsupported("merge takes caches of one sequence")
        made = slots[0].cache.merge([s.cache for s in slots])
        self.slots[op.target] = Slot(made, slots[0].layout, slots[0].formats, [0] * len(slots))

    def do_extract(self, op, index, answer):
        slot = self.slots[op.slot]
        made = self.method(slot, "extract")(op.count)
        self.slots[op.target] = Slot(made, slot.layout, slot.formats, [0])

    def do_to_quantized(self, op, index, answer):
        slot = self.slots[op.slot]
        texts = (op.options["k"], op.options.get("v", op.options["k"]))
        bits, group, kind = parse_format(texts[0]) or (0, 0, "")
        if texts[0] != texts[1] or kind != self.setup.x:
            raise Unsupported("one format, with scales of the type of the vectors")
        slot.cache = self.method(slot, "to_quantized")(group_size=group, bits=bits)
        slot.formats, slot.step = texts, None

    def do_copy(self, op, index, answer):
        slot = self.slots[op.slot]
        self.slots[op.target] = slot.copied(copy.deepcopy(slot.cache))

    def path(self, key):
        return str(self.folder / f"{key}.safetensors")

    def do_save(self, op, index, answer):
        slot = self.slots[op.slot]
        library.save_prompt_cache(self.path(op.key), [slot.cache])
        self.saved[op.key] = slot.copied(None)

    def do_load(self, op, index, answer):
        (made,) = library.load_prompt_cache(self.path(op.key))
        mx.eval([part for _, part in tree_flatten(made.state) if isinstance(part, mx.array)])
        self.slots[op.target] = self.saved[op.key].copied(made)

    def do_damage(self, op, index, answer):
        with open(self.path(op.key), "rb") as file:
            data = bytearray(file.read())
        how, at = op.options["how"], int(op.options.get("at", 0))
        start = 8 + int.from_bytes(data[:8], "little")
        if how == "truncate":
            data.pop()
        elif how == "flip":
            data[start + at % (len(data) - start)] ^= 1 << (at % 8)
        elif how == "foreign":
            data = bytearray(b"\x02\0\0\0\0\0\0\0{}")  # a whole file of that format, and no cache
        else:
            raise Unsupported("files of prompt caches have no version")
        # Another file under the name: arrays that were loaded may still be read from the old one.
        with open(self.path("damaged"), "wb") as file:
            file.write(data)
        os.replace(self.path("damaged"), self.path(op.key))

    def do_attend(self, op, index, answer):
        slot, s = self.slots[op.slot], self.setup
        if slot.step is None:
            raise ValueError("no append whose queries could attend")
        keys, values, visible, before = slot.step
        rows, queries = visible.shape[:2]
        ids = [token_rows.token_id(index, row, l) for row in range(rows) for l in range(queries)]
        q = token_rows.vectors(s.seed, ids, range(s.query_heads), token_rows.QUERY, s.x, s.k_dim)
        q = q.reshape(rows, queries, s.query_heads, s.k_dim).transpose(0, 2, 1, 3)
        # The library's window takes the place of the layout's; the contract's joins it.
        windows = [int(op.options["window"])] if "window" in op.options else []
        windows += [n for n in (layout_of(slot.layout)[1].get("w"),) if n and (windows or self.window(slot))]
        window = min(windows, default=None)
        mask = mask_of(copy.deepcopy(before), rows, queries, window)
        sinks = mx.array(token_rows.sinks(s.seed, s.query_heads)) if "sinks" in op.options else None
        coded = len(keys) > 1
        if (coded and sinks is not None) or ("window" in op.options and isinstance(before, library.ChunkedKVCache)):
            raise Unsupported("quantized attention has no sinks, chunked attention no window")
        given = np.ascontiguousarray(q)
        q = make_mlx.to_mlx(given, s.x)
        out = base.scaled_dot_product_attention(
            q, keys if coded else keys[0], values if coded else values[0],
            cache=slot.cache, scale=float(op.options.get("scale", s.k_dim**-0.5)), mask=mask, sinks=sinks)
        answer.attended = stored(out)
        answer.changed = CHANGED_INPUTS * (given.tobytes() != stored(q).tobytes())

    def do_drop(self, op, index, answer):
        del self.slots[op.slot]

    # ---------------------------------------------------------------------------- observation

    def window(self, slot):
        kind, fields = layout_of(slot.layout)
        return fields.get("w") if kind == "linear" else None

    def told_layout(self, cache):
        if isinstance(cache, library.RotatingKVCache):
            return f"ring:w={cache.max_size}" + (f":keep={cache.keep}" if cache.keep else "")
        if isinstance(cache, library.BatchRotatingKVCache):
            return f"ring:w={cache.max_size}"
        if isinstance(cache, library.ChunkedKVCache):
            return f"chunk:c={cache.chunk_size}"
        return "-"

    def told_formats(self, slot):
        cache = slot.cache
        if getattr(cache, "keys", None) is None:
            return slot.formats
        if isinstance(cache, library.QuantizedKVCache):
            return tuple(f"affine:{cache.bits}:g{cache.group_size}:{kind_of(part[1].dtype)}"
                         for part in (cache.keys, cache.values))
        return tuple(kind_of(part.dtype) for part in (cache.keys, cache.values))

    def show(self, name):
        slot = self.slots[name]
        cache, rows = slot.cache, len(slot.padding)
        state = State(rows, self.told_layout(cache), self.told_formats(slot))
        if slot.step is not None:
            keys, values, state.visible, _ = slot.step
            state.queries = state.visible.shape[1]
            self.fill(state, keys, values)
        elif slot.to_come is None and rows > 0:
            self.probe(slot, state)
        if slot.to_come is None:
            offsets = np.broadcast_to(np.array(cache.offset), (rows,)).tolist()
            state.offsets = tuple(max(0, n) for n in offsets)
            if hasattr(cache, "left_padding"):
                state.unfed = tuple(max(0, -n) for n in offsets)
        # Beside columns that are shown, or none; of a window a probe shows one token less than size counts.
        whole = state.retained is not None and layout_of(slot.layout) == ("linear", {})
        if slot.step is not None or whole or cache.empty():
            state.size = max(cache.size(), UNKNOWN)  # a negative size is none
        try:
            state.live_bytes = cache.nbytes
        except AttributeError:  # an empty QuantizedKVCache
            pass
        if layout_of(slot.layout) == ("linear", {}):
            state.capacity_bytes = state.live_bytes
        state.empty, state.trimmable = int(cache.empty()), int(cache.is_trimmable())
        return state

    def fill(self, state, keys, values):
        state.columns = keys[0].shape[2]
        state.k, state.v = (tuple(stored(part) for part in parts) for parts in (keys, values))

    def probe(self, slot, state):
        """Columns that the next query sees. A probe that raises tells nothing: the next append will raise too."""
        s = self.setup
        k, v = (mx.full((state.rows, s.kv_heads, 1, dim), PROBE, make_mlx.TYPES[s.x]) for dim in (s.k_dim, s.v_dim))
        copied = copy.deepcopy(slot.cache)
        try:
            keys, values, visible = feed(copied, k, v, self.window(slot))
        except Exception:
            return
        self.fill(state, keys, values)
        if len(keys) == 1:
            marks = [state.k[0] == stored(k)[:, :, :1]]
        else:
            bits, group, _ = parse_format(state.formats[0])
            marks = [a == b for a, b in zip(state.k, map(stored, mx.quantize(k, group_size=group, bits=bits)))]
        is_probe = np.logical_and.reduce([mark.all((1, 3)) for mark in marks])
        state.retained = visible[:, 0] & ~is_probe
