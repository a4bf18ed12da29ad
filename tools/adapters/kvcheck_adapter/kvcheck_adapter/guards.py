"""Preconditions that a library leaves to its callers: such a call is refused here, and nothing is claimed of what the
library would have done. What stands in Adapter.relies_on is refused; everything else is put to the library.
"""
from .base import Refused

NAMES = frozenset({"rows", "padding", "pending", "lengths", "kinds", "single", "counts", "columns", "windows",
                   "results"})


def new(relies_on, rows, padding):
    if "padding" in relies_on and padding and (len(padding) != rows or min(padding) < 0):
        raise Refused("padding needs one number per row, none negative")


def pending(relies_on, *slots):
    if "pending" in relies_on and any(slot.to_come is not None for slot in slots):
        raise Refused("a prepared prefill is not finalized")


def rows(relies_on, slot, wanted):
    if "rows" in relies_on and any(not 0 <= row < slot.rows for row in wanted):
        raise Refused(f"a row that is not there; the cache has {slot.rows}")


def count(relies_on, number):
    if "counts" in relies_on and number < 0:
        raise Refused("a negative number of tokens")


def window(relies_on, tokens):
    if "windows" in relies_on and tokens is not None and tokens < 1:
        raise Refused("a window holds at least one token")


def prepare(relies_on, slot, lengths):
    if "lengths" in relies_on and (len(lengths) != slot.rows or any(n < 0 for n in lengths)):
        raise Refused("prepare needs one length per row, none negative")


def finalize(relies_on, slot):
    if "lengths" in relies_on and slot.to_come is not None and any(slot.to_come):
        raise Refused("tokens of the prepared prefill have not arrived")


def alike(relies_on, *slots):
    first = slots[0]
    if "kinds" in relies_on and any((s.layout, s.k, s.v) != (first.layout, first.k, first.v) for s in slots):
        raise Refused("caches of different layouts or formats")


def single(relies_on, slots):
    if "single" in relies_on and any(slot.rows != 1 for slot in slots):
        raise Refused("merge takes caches of one row")


def append(relies_on, slot, setup, kind, k, v):
    if "columns" not in relies_on:
        return
    rows_, heads, columns, dim = k.shape
    if (kind != setup.x or rows_ != slot.rows or heads != setup.kv_heads or dim != setup.k_dim
            or v.shape != (rows_, heads, columns, setup.v_dim)):
        raise Refused("columns of another shape or type than the cache's")
