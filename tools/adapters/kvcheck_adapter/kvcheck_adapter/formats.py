"""Texts of storage formats. A family of formats is a class in a file of its own, and an entry of FAMILIES."""
import functools

from .affine import Affine
from .int4zp import Int4zp
from .plain import Plain
from .planes import Format
from .q4_0 import Q4_0
from .q8_0 import Q8_0
from .scaled import Scaled

FAMILIES = (Plain, Affine, Q8_0, Q4_0, Scaled, Int4zp)


@functools.lru_cache(maxsize=1024)
def parse_format(text):
    for family in FAMILIES:
        fmt = family.parse(text)
        if fmt is not None:
            return fmt
    raise ValueError(f"no format: {text!r}")
