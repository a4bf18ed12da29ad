"""Judges recorded traces in numpy, apart from the C++ of the project: a cache is a list of tokens per row.

Held to the tokens: which operations were carried out, what each query of the last append saw, what the next one would
see, offsets, what trim gave back. Not judged here: attention, sizes and bytes. `kvcheck golden verify` judges all.
"""
import collections
import dataclasses

import numpy as np

import affine_groups
import regimes
import token_rows
import trace_recording
from trace_text import SLOTS, layout_of, parse

IDLE, DONE, REFUSED = range(3)


class Broken(Exception):
    """What the recording shows is not what the contract says."""


@dataclasses.dataclass
class Row:
    tokens: list  # (bytes of K, bytes of V) by position
    unfed: int = 0
    to_come: int | None = None
    first_query: int = 0
    query_tokens: int = 0

    def copied(self):
        return Row(list(self.tokens), self.unfed)


@dataclasses.dataclass
class Cache:
    layout: str
    formats: tuple
    rows: list
    queries: int = 0

    def copied(self):
        return Cache(self.layout, self.formats, [row.copied() for row in self.rows])


def visible(layout, position):
    """Positions that the query at this position sees."""
    kind, f = layout_of(layout)
    if kind == "chunk":
        return set(range(position // f["c"] * f["c"], position + 1))
    width = f.get("w", position + 1) - f.get("keep", 0)
    return set(range(min(f.get("keep", 0), position + 1))) | set(range(max(0, position - width + 1), position + 1))


def required(layout, offset):
    """Positions that the next query sees, without its own."""
    return visible(layout, offset) - {offset}


def encoded(vectors, kind, text):
    """Vectors (heads, dim) as stored, and their bytes as the format stores them: one text of bytes for all heads."""
    if not text.startswith("affine"):
        return b"".join(v.tobytes() for v in vectors)
    bits, _, scale_kind = affine_groups.parameters_of(text)
    codes, scales, biases = affine_groups.encode(regimes.widen(vectors, kind), text)
    parts = (affine_groups.pack(codes, bits), regimes.to_storage(scales, scale_kind), regimes.to_storage(biases, scale_kind))
    return b"".join(part[head].tobytes() for head in range(len(vectors)) for part in parts)


class Model:
    def __init__(self, setup, operations):
        self.setup, self.operations = setup, operations
        self.slots, self.saved = {}, {}

    def token(self, part, ids, text):
        s = self.setup
        dim = s.k_dim if part == token_rows.KEY else s.v_dim
        vectors = token_rows.vectors(s.seed, ids, range(s.kv_heads), part, s.x, dim)
        return vectors, [encoded(v, s.x, text) for v in vectors]

    def append(self, cache, count, operation):
        for b, row in enumerate(cache.rows):
            padding = min(row.unfed, count)
            tokens = count - padding if row.to_come is None else min(count - padding, row.to_come)
            ids = [token_rows.token_id(operation, b, n) for n in range(padding, padding + tokens)]
            if ids:
                parts = [self.token(part, ids, text) for part, text in zip((0, 1), cache.formats)]
                # The vectors as given stay beside their bytes: to_quantized encodes them.
                row.tokens += [((k, kb), (v, vb)) for (k, kb), (v, vb) in zip(*(zip(*p) for p in parts))]
            row.unfed -= padding
            row.to_come = None if row.to_come is None else row.to_come - tokens
            row.first_query, row.query_tokens = padding, tokens
        cache.queries = count

    def is_idle(self, op):
        named = {"new": (), "load": (), "merge": op.operands, "extend": (op.slot, op.target)}.get(op.kind, (op.slot,))
        return op.key not in self.saved if op.kind == "damage" else any(s not in self.slots for s in named)

    def may_refuse(self, op):
        return op.kind == "load" and self.saved.get(op.key) is None

    def carry_out(self, index, status, number):
        op = self.operations[index]
        if (status == IDLE) != self.is_idle(op):
            raise Broken("idle")
        if status == IDLE:
            return
        illegal = self.may_refuse(op) or "wrong" in op.options or op.count < 0
        if illegal != (status == REFUSED):
            raise Broken(f"operation {index + 1} was {'carried out' if illegal else 'refused'}")
        if status == REFUSED:
            return
        cache = self.slots.get(op.slot)
        if op.kind == "new":
            formats = (op.options.get("k", self.setup.k), op.options.get("v", self.setup.v))
            padding = op.numbers or (0,) * op.count
            self.slots[op.slot] = Cache(op.options.get("layout", self.setup.layout), formats,
                                        [Row([], p) for p in padding])
        elif op.kind == "append":
            self.append(cache, op.count, index)
        elif op.kind == "merge":
            caches = [self.slots[s].copied() for s in op.operands]
            self.slots[op.target] = Cache(caches[0].layout, caches[0].formats, [c.rows[0] for c in caches])
        elif op.kind == "extract":
            self.slots[op.target] = Cache(cache.layout, cache.formats, [Row(list(cache.rows[op.count].tokens))])
        elif op.kind == "copy":
            self.slots[op.target] = cache.copied()
        elif op.kind == "save":
            self.saved[op.key] = cache.copied()
        elif op.kind == "load":
            self.slots[op.target] = self.saved[op.key].copied()
        elif op.kind == "damage":
            self.saved[op.key] = None
        elif op.kind == "drop":
            del self.slots[op.slot]
        elif op.kind != "attend":
            self.change(cache, op, number)

    def change(self, cache, op, number):
        if op.kind == "trim":
            longest = min([op.count] + [len(row.tokens) for row in cache.rows])
            if not (number == longest if cache.layout == "linear" else 0 <= number <= longest):
                raise Broken(f"{number} tokens gone of {longest}")
            for row in cache.rows:
                row.tokens = row.tokens[:len(row.tokens) - number]
        elif op.kind == "prepare":
            for row, length in zip(cache.rows, op.numbers):
                row.to_come = length
        elif op.kind == "finalize":
            for row in cache.rows:
                row.to_come = None
        elif op.kind == "filter":
            cache.rows = [cache.rows[r].copied() for r in op.numbers]
        elif op.kind == "extend":
            cache.rows = cache.rows + [row.copied() for row in self.slots[op.target].rows]
        elif op.kind == "to_quantized":
            cache.formats = (op.options["k"], op.options["v"])
            for row in cache.rows:
                row.tokens = [tuple((vectors, encoded(vectors, self.setup.x, text))
                                    for (vectors, _), text in zip(token, cache.formats)) for token in row.tokens]
        cache.queries = 0


def states_of(outputs, setup):
    """Every recorded state: its numbers, its tokens per (row, column), and its masks."""
    left = {name: outputs[name].array for name in ("k", "v", "visible", "retained", "rows")}

    def take(name, *shape):
        count = int(np.prod(shape))
        taken, left[name] = left[name][:count], left[name][count:]
        return taken.reshape(shape)

    kinds = outputs["kinds"].array.tobytes().decode().splitlines()
    for numbers, kind in zip(outputs["states"].array.tolist(), kinds):
        state = dict(zip(trace_recording.FIELDS, numbers), layout=kind.split(" ")[0])
        rows, columns = state["rows"], state["columns"]
        state["numbers"], left["rows"] = left["rows"][:rows], left["rows"][rows:]
        state["tokens"] = [[[] for _ in range(columns)] for _ in range(rows)]
        for name, dim, text in (("k", setup.k_dim, kind.split(" ")[1]), ("v", setup.v_dim, kind.split(" ")[2])):
            if not state["holds"]:
                continue
            if text.startswith("affine"):
                bits, group, scale = affine_groups.parameters_of(text)
                scale_bytes = dim // group * (4 if scale == "f32" else 2)
                sizes = (dim * bits // 8, scale_bytes, scale_bytes)
            else:
                sizes = (dim * (4 if text == "f32" else 2),)
            parts = [take(name, rows, setup.kv_heads, columns, size) for size in sizes]
            joined = np.concatenate(parts, -1)
            for b in range(rows):
                for c in range(columns):
                    state["tokens"][b][c].append(joined[b, :, c].tobytes())
        state["visible"] = take("visible", rows, state["queries"], columns) if state["tells_visible"] else None
        state["retained"] = take("retained", rows, columns) if state["tells_retained"] else None
        yield state


def compare(cache, state):
    if (state["rows"], state["queries"]) != (len(cache.rows), cache.queries):
        raise Broken("rows or queries")
    if state["layout"] not in ("-", cache.layout):
        raise Broken("the layout")
    for b, row in enumerate(cache.rows):
        offset, unfed = state["numbers"][b]
        if offset not in (-1, len(row.tokens)) or unfed not in (-1, row.unfed):
            raise Broken("an offset or padding")
        bytes_of = [tuple(stored for _, stored in token) for token in row.tokens]
        shown = [tuple(token) for token in state["tokens"][b]]

        def seen(mask):
            return collections.Counter(shown[c] for c in np.flatnonzero(mask))

        for q in range(row.query_tokens if state["visible"] is not None else 0):
            position = len(row.tokens) - row.query_tokens + q
            want = collections.Counter(bytes_of[p] for p in visible(cache.layout, position))
            if seen(state["visible"][b, row.first_query + q]) != want:
                raise Broken(f"what the query at position {position} sees")
        if state["retained"] is not None:
            kept, all_tokens = seen(state["retained"][b]), collections.Counter(bytes_of)
            need = collections.Counter(bytes_of[p] for p in required(cache.layout, len(row.tokens)))
            if kept - all_tokens or need - kept:
                raise Broken("what is retained")


def broken(case, record):
    """Why the recording breaks the contract, or "" when it keeps to it."""
    setup, operations = parse(case.case_text)
    model, states = Model(setup, operations), list(states_of(record.outputs, setup))
    answers, slots = record.outputs["answers"].array.tolist(), record.outputs["slots"].array.tolist()
    for index, ((status, number, changed), shown) in enumerate(zip(answers, slots)):
        try:
            model.carry_out(index, status, number)
            if changed & 1:
                raise Broken("the caller's arrays")
            for name, state in zip(SLOTS, shown):
                if (state >= 0) != (name in model.slots):
                    raise Broken("which slots are used")
                if state >= 0:
                    compare(model.slots[name], states[state])
        except Broken as reason:
            return f"operation {index + 1}, {operations[index].text}: {reason}"
    return ""


def is_as_expected(case, record):
    """None: decided by attention, which is not judged here."""
    found = broken(case, record)
    if record.expect == "FAIL" and not found and "; attend" in case.case_text:
        return None, found
    return bool(found) == (record.expect == "FAIL"), found
