"""A recorded trace as the outputs of a golden file (golden/README.md, Recorded traces), and back.

    answers   int64 (operations, 3)   0 on an empty slot, 1 carried out, 2 refused, 3 unsupported; of trim: tokens gone,
                                      else -1; 1 when it changed the caller's arrays, 2 when arrays that the append
                                      before it returned, 3 both
    messages  uint8                   a line per operation: what was raised
    slots     int64 (operations, 5)   the state that each slot shows after the operation; -1: it is empty
    states    int64 (states, 12)      FIELDS
    kinds     uint8                   a line per state: layout (or -), format of K, format of V
    rows      int64 (rows, 2)         of all states in turn: offset, unfed padding; -1: cannot tell
    k, v      uint8                   of all states in turn: codes, scales, biases, each (rows, heads, columns, bytes)
    visible   bool                    of all states that know it: (rows, queries, columns)
    retained  bool                    of all states that know it: (rows, columns)
    attended  uint8                   of all attends that were carried out: (rows, query heads, queries, dv)
"""
import numpy as np

import kvcheck_golden as kg

FIELDS = ("rows", "columns", "queries", "holds", "tells_visible", "tells_retained", "size", "live_bytes",
          "capacity_bytes", "empty", "trimmable", "pending")
SLOTS = "ABCDE"


def _bytes(parts):
    return np.concatenate([np.frombuffer(p.tobytes(), np.uint8) for p in parts] or [np.zeros(0, np.uint8)])


def _lines(lines):
    assert all("\n" not in line for line in lines)
    return np.frombuffer("".join(line + "\n" for line in lines).encode(), np.uint8)


def _key(state):
    return (state.rows, state.layout, state.formats, state.columns, state.queries, state.offsets, state.unfed,
            state.size, state.live_bytes, state.capacity_bytes, state.empty, state.trimmable,
            b"".join(p.tobytes() for p in state.k + state.v),
            None if state.visible is None else state.visible.tobytes(),
            None if state.retained is None else state.retained.tobytes())


def outputs(answers, shown):
    """answers: per operation. shown: per operation, slot name -> state. Equal states are stored once."""
    states, numbers = [], {}
    slots = np.full((len(answers), len(SLOTS)), -1, np.int64)
    for i, after in enumerate(shown):
        for name, state in after.items():
            number = numbers.setdefault(_key(state), len(states))
            if number == len(states):
                states.append(state)
            slots[i, SLOTS.index(name)] = number
    table = np.array([[s.rows, s.columns, s.queries, int(bool(s.k)), int(s.visible is not None),
                       int(s.retained is not None), s.size, s.live_bytes, s.capacity_bytes, s.empty, s.trimmable, -1]
                      for s in states], np.int64).reshape(len(states), len(FIELDS))
    rows = [(s.offsets[b] if s.offsets else -1, s.unfed[b] if s.unfed else -1) for s in states for b in range(s.rows)]

    def masks(name):
        return np.concatenate([getattr(s, name).ravel() for s in states if getattr(s, name) is not None] or
                              [np.zeros(0, bool)])

    return {"answers": np.array([(a.status, a.number, a.changed) for a in answers], np.int64).reshape(-1, 3),
            "messages": _lines([a.message for a in answers]),
            "slots": slots, "states": table,
            "kinds": _lines([" ".join((s.layout, *s.formats)) for s in states]),
            "rows": np.array(rows, np.int64).reshape(-1, 2),
            "k": _bytes([p for s in states for p in s.k]), "v": _bytes([p for s in states for p in s.v]),
            "visible": kg.Typed(masks("visible"), "bool"), "retained": kg.Typed(masks("retained"), "bool"),
            "attended": _bytes([a.attended for a in answers if a.attended is not None])}
