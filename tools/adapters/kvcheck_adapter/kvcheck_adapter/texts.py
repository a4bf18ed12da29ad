"""Layouts, formats and cases as kvcheck writes them (reference/README.md, sections 3.1 to 3.8)."""
import functools
from typing import NamedTuple

from .formats import Format, parse_format


class Layout(NamedTuple):
    text: str
    kind: str  # "linear", "ring", "chunk"
    window: int | None  # of linear and ring
    keep: int  # of ring: first tokens that stay
    chunk: int | None


@functools.lru_cache(maxsize=1024)
def parse_layout(text):
    kind, *parts = text.split(":")
    fields = {key: int(value) for key, value in (part.split("=") for part in parts)}
    if kind not in ("linear", "ring", "chunk") or set(fields) - {"w", "keep", "c"}:
        raise ValueError(f"no layout: {text!r}")
    return Layout(text, kind, fields.get("w"), fields.get("keep", 0), fields.get("c"))


def case_fields(text):
    """{key: text} of a case on one line; its kind is under "kind"."""
    kind, *fields = text.split(" ")
    return {"kind": kind, **dict(field.split("=", 1) for field in fields)}
