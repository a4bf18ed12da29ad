"""Storage formats of K and V: what stored bytes mean, and how rows are stored.

    planes = kvcheck.encode(x, "affine:4:g64:f16")     # {"codes": ..., "scales": ..., "biases": ...}
    y = kvcheck.decode(planes, "affine:4:g64:f16")
"""
import numpy as np

from . import _arrays, _core
from ._attention import settings
from ._errors import Error

__tracebackhide__ = True

_ROW_TYPES = ("float64", "float32", "float16", "bfloat16")


def names():
    """The texts of the formats of this build. Of a family with numbers of its own some of each kind."""
    return list(_core.formats())


def facts(format):
    """{"planes", "block", "rows"}: names of the planes, channels that share something, the type of decoded rows."""
    planes, block, rows, is_plain = _core.format_facts(format)
    return {"planes": list(planes), "block": block, "rows": rows, "plain": is_plain}


def encode(x, format, *, profile="", threads=None, library="numpy"):
    """The planes in which `format` stores the rows of x (..., d), each (..., elements of a row).

    profile: whose encoder, where libraries differ ("encode=mlx_gpu"). Plain formats have the one plane "codes".
    """
    data, kind = _arrays.of(x, "x")
    data = np.asarray(data)
    if data.ndim < 1:
        raise Error("array 'x': rows have at least one axis", "illegal case", "array 'x'")
    rows = data.reshape(-1, data.shape[-1])
    planes = _core.encode({"x": (rows, kind)}, format, settings(profile=profile, threads=threads))
    names = [name for name in facts(format)["planes"] if name in planes]
    return {name: _arrays.back(planes[name], library, (*data.shape[:-1], planes[name][2][-1])) for name in names}


def decode(planes, format, *, d=None, dtype=None, profile="", threads=None, library="numpy"):
    """The values (..., d) that stored rows mean.

    planes: a dict as encode gives, or the one array of a format with one plane. dtype: of the values (default: the
    format's own type of rows, f32 of fp8); of a format whose rows have another type they are rounded to it once. d: channels of a row (default: as many as the planes hold).
    """
    known = facts(format)
    if not isinstance(planes, dict):
        if len(known["planes"]) != 1:
            raise Error(f"format '{format}' has the planes {', '.join(known['planes'])}: give a dict", "missing data",
                        "planes")
        planes = {known["planes"][0]: planes}
    held = _arrays.held(planes)
    for name, (x, _) in held.items():
        if name not in known["planes"]:
            raise Error(f"format '{format}' has the planes {', '.join(known['planes'])}, and no '{name}'", "usage", name)
        if np.ndim(x) < 1:
            raise Error(f"plane '{name}': rows have at least one axis", "illegal case", f"array '{name}'")
    leading = next(iter(held.values()))[0].shape[:-1] if held else ()
    flat = {name: (np.asarray(x).reshape(-1, np.shape(x)[-1]), kind) for name, (x, kind) in held.items()}
    own = known["rows"] if known["rows"] in _ROW_TYPES else "float32"
    kind = own if dtype is None else _arrays.type_named(dtype)
    made = _core.decode(flat, format, kind, d or 0, settings(profile=profile, threads=threads))
    if made[1] != kind:
        made = _arrays.as_type(made, kind)
    return _arrays.back(made, library, (*leading, made[2][-1]))
