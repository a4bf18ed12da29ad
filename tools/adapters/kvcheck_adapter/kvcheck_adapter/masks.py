"""Masks: what libraries hand to attention becomes the set of columns that each query sees."""
import numpy as np

from .base import Misfit

# exp(-1000) is 0 in every type, whatever the other scores of a row, as long as these differ by a few hundred.
HIDES_BELOW = -1000.0


def visible_of(mask, rows, queries, columns):
    """The columns that each query sees, as bool (rows, queries, columns).

    mask: None (all), "causal" (bottom right: the last query sees the last column), or an array that broadcasts with
    scores (rows, heads, queries, columns): of bool, true = seen; of floats, which are added to scores: seen above
    HIDES_BELOW, so that -1e4, -1e9, the lowest finite value and -inf all hide. Errors: ValueError where it does not fit,
    where heads differ, and for integers, which may mean either.
    """
    shape = (rows, queries, columns)
    if mask is None:
        return np.ones(shape, bool)
    if isinstance(mask, str):
        if mask != "causal":
            raise ValueError(f"no mask: {mask!r}")
        if queries == 1:
            return np.ones(shape, bool)
        seen = np.tri(queries, columns, columns - queries, dtype=bool)
        return np.broadcast_to(seen, shape)
    array = np.asarray(mask)
    if array.dtype.kind in "iu":
        raise ValueError(f"a mask of {array.dtype} may be one of 0 and 1 or one that is added: give bool or float")
    if array.dtype != np.bool_:
        array = array > HIDES_BELOW
    if array.ndim and array.shape[-1] not in (1, columns):
        raise Misfit("mask", f"the mask covers {array.shape[-1]} columns, K and V have {columns}")
    if array.ndim == 4:
        if array.shape[1] != 1 and (array != array[:, :1]).any():
            raise ValueError("the mask differs from head to head")
        array = array[:, 0]
    elif array.ndim == 3:  # (heads, queries, columns), as broadcasting has it
        if array.shape[0] != 1 and (array != array[:1]).any():
            raise ValueError("the mask differs from head to head")
        array = array[0]
    return np.broadcast_to(array, shape)


def case_mask(fields, inputs):
    """The mask of a case of kind attention: None, "causal" (bottom right), or an array over (B, Hq, L, T).

    fields: of the case; inputs: its arrays. An additive array is given as it came, in its storage type, where it stands
    alone; beside other terms -inf joins it at what they hide (float32).
    """
    text = str(fields.get("mask", "none"))
    if text == "none":
        return None
    if text == "causal_bottom_right":
        return "causal"
    queries, keys = int(fields["l"]), int(fields["t"])
    position = np.arange(queries)[:, None] + keys - queries
    key = np.arange(keys)[None]
    seen, additive = None, None
    for term in text.split("+"):
        name, _, rest = term.partition(":")
        if name == "causal_bottom_right":
            part = key <= position
        elif name == "causal_top_left":
            position = np.arange(queries)[:, None]
            part = key <= position
        elif name == "window":
            part = key > position - int(rest)  # later keys are no matter of a window
        elif name == "left_pad":
            padding = np.array([int(n) for n in rest.split(",")])
            part = key[None, None] >= padding[:, None, None, None]
        elif name == "bool":
            part = inputs["mask"]
        elif name == "additive":
            additive = inputs["mask"]
            continue
        else:
            raise ValueError(f"no mask term: {term!r}")
        seen = part if seen is None else seen & part
    if additive is None:
        return np.ascontiguousarray(seen)
    if seen is None:
        return additive
    from .storage import to_float32
    kind = text.rsplit(":", 1)[1]
    return np.where(seen, to_float32(additive, kind), np.float32(-np.inf))
