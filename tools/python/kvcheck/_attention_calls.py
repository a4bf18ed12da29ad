"""Attention of which a test shows the inputs. Calls of scaled_dot_product_attention (torch, mlx) are kept while a test
runs; an assertion about the output of one is asked about faults of attention (kvcheck faults list), and told how large
an error the data explain.
"""
import sys

import numpy as np

from . import _arrays, _attention, _core
from ._errors import Error

# Those that any call can have; what a call has not (a mask, sinks) no fault of it changes, and it is not asked.
FAULTS = ("first_key_dropped", "last_key_dropped", "future_key_visible", "v_rows_swapped", "wrong_kv_head", "gqa_tiled",
          "temperature_1_percent", "scale_missing", "causal_ignored", "causal_top_left", "causal_bottom_right",
          "mask_array_ignored", "mask_of_first_query", "sinks_ignored", "p_rounded_to_bf16", "element_replaced")
# Both sides of an assertion may be kernels of which nothing is known.
PLAN = "stranger"
# Calls kept of a test; products of q and k in a call, which the reference takes in double-double and each fault anew:
# some seconds; calls of a test that are asked about under one tolerance: the others say the same.
MOST_CALLS = 16
MOST_PRODUCTS = 1 << 26
MOST_ASKED = 2


def _torch_keywords(attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        return None
    return {"mask": attn_mask, "causal": "top_left" if is_causal else False, "scale": scale}


def _mlx_keywords(*, scale, mask=None, sinks=None, stream=None):
    is_causal = isinstance(mask, str)
    if is_causal and mask != "causal":
        return None
    return {"mask": None if is_causal else mask, "causal": is_causal, "scale": scale, "sinks": sinks}


# (module, function): what its keywords mean as those of kvcheck.judge_attention; None: another question.
TARGETS = {("torch.nn.functional", "scaled_dot_product_attention"): _torch_keywords,
           ("mlx.core.fast", "scaled_dot_product_attention"): _mlx_keywords}


def _numpy_of(x):
    """A copy with values in f64, whatever the library."""
    return _arrays.widened(*_arrays.of(x, "x"))


def _weak(x):
    """() -> x; LookupError where nothing else holds its memory any more. Only arrays of torch lie in memory that can be
    asked for without holding it; an array of another library is held until the test ends."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return lambda: x
    try:
        from torch.multiprocessing.reductions import StorageWeakRef
        with torch.no_grad():
            plain = x.detach()
            memory = StorageWeakRef(plain.untyped_storage())
            place = plain.storage_offset(), plain.shape, plain.stride()
    except Exception:  # one that a compiler traces or vmap wraps has no memory
        memory = None
    kind, device = x.dtype, x.device

    def held():
        storage = None if memory is None else torch.UntypedStorage._new_with_weak_ptr(memory.cdata)
        if storage is None:
            raise LookupError("the test holds this tensor no longer")
        return torch.empty(0, dtype=kind, device=device).set_(storage, *place)
    return held


class Call:
    """One call: q, k, v, its keywords, and its output, all as the test has them, as long as it has them."""

    def __init__(self, out, arguments, keywords, meaning):
        self._out = _weak(out)
        self._asked = [_weak(x) for x in arguments], {name: _weak(x) for name, x in keywords.items()}, meaning
        self._values = None

    @property
    def out(self):
        return self._out()

    def values(self):
        """The output's values; none of an output that has none, as one that a compiler traces."""
        if self._values is None:
            try:
                self._values = _numpy_of(self.out)
            except Exception:  # what a library says of an array that is none
                self._values = np.zeros(0)
        return self._values

    def question(self):
        """(q, k, v, keywords of judge_attention), or None for what is not asked."""
        arguments, keywords, meaning = self._asked
        try:
            arguments, named = [x() for x in arguments], {name: x() for name, x in keywords.items()}
        except LookupError:
            return None
        given = [*arguments[:3], *(named.pop(name) for name in ("query", "key", "value", "q", "k", "v") if name in named)]
        if len(given) != 3:
            return None
        try:
            meant = meaning(*arguments[3:], **named)
        except TypeError:
            return None
        if meant is None or given[0].ndim not in (3, 4):
            return None
        work = int(np.prod(given[0].shape)) * given[1].shape[-2]
        if work > MOST_PRODUCTS:
            return None
        return *given, {**meant, "layout": "bhsd" if given[0].ndim == 4 else "hsd"}


def find(calls, x):
    """(call, how its output became x) of the newest call whose output x is, up to the order of its axes; or None."""
    if not calls:
        return None
    try:
        values = _numpy_of(x)
    except Error:
        return None
    for call in reversed(calls):
        out = call.values()
        if out.size != values.size or not out.size:
            continue
        # Tests hand on (B, H, L, D) as it is or with tokens before heads, and heads and channels as one axis.
        for form in (lambda y: y, lambda y: np.swapaxes(y, -3, -2))[:2 if out.ndim > 2 else 1]:
            if np.array_equal(form(out).reshape(values.shape), values, equal_nan=True):
                return call, lambda y, form=form: form(y).reshape(values.shape)
    return None


class Finding:
    """What the data of a call say. justified: the largest distance of two right answers, one in the type of the output and
    one in that of what it is compared with; ratio: of the error of the output to its bound; faults(): outputs that are no
    right answers."""

    def __init__(self, call, other):
        question = call.question()
        if question is None:
            raise Error("another question than kvcheck's", "unsupported")
        q, k, v, keywords = question
        self._plan = _attention.settings(PLAN)
        own, bounds = _arrays.of(call.out, "out")[1], {}
        for kind in {own, other}:
            self.value, _, bounds[kind] = _attention.reference_attention(q, k, v, plan=PLAN, dtype=kind, **keywords)["out"]
        self._bound = bounds[own]
        defined = np.isfinite(self.value) & np.isfinite(self._bound)
        if not defined.any():
            raise Error("no element has a bound", "unsupported")
        self._defined = defined
        self.justified = float(np.max((bounds[own] + bounds[other])[defined]))
        out = call.values().reshape(self.value.shape)
        with np.errstate(all="ignore"):
            self.ratio = float(np.max((np.abs(out - self.value) / self._bound)[defined]))
        self.shape = out.shape if q.ndim == 4 else out.shape[1:]
        verdict = _attention.judge_attention(call.out, q, k, v, plan=PLAN, rows=1, **keywords)
        self._case = verdict.case
        mask = None if keywords["mask"] is None else self._mask_as_in_case(_arrays.of(keywords["mask"], "mask"))
        self._inputs = {**_arrays.held({"q": self._four(q), "k": self._four(k), "v": self._four(v),
                                        "sinks": keywords.get("sinks")}), **({"mask": mask} if mask else {})}

    @staticmethod
    def _four(x):
        return x if x.ndim == 4 else x[None]

    def _mask_as_in_case(self, held):
        """The array of the term that the case has for it ("bool:B1LT")."""
        mask, kind = held
        axes = next(term.split(":")[1] for term in self._case.split(" mask=")[1].split()[0].split("+")
                    if term.startswith(("bool:", "additive:")))
        words = dict(word.split("=", 1) for word in self._case.split()[1:])
        extents = {"B": int(words.get("b", 1)), "H": int(words["hq"]), "L": int(words["l"]), "T": int(words["t"]), "1": 1}
        mask = np.asarray(mask)
        if mask.ndim == 3:
            mask = mask[:, None]
        full = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        wanted = tuple(extents[axis] for axis in axes.rjust(4, "1"))
        return np.broadcast_to(full, wanted).reshape(wanted[4 - len(axes):]), kind

    def faults(self):
        """(name, output (B, H, L, D) in f64) of each fault that the bound tells from a right answer."""
        for name in FAULTS:
            try:
                answer = _core.answer(self._case, self._inputs, f"fault:{name}", self._plan)["out"]
            except Error:
                continue  # no such thing as this fault in this case
            out = _arrays.widened(answer[0], answer[1]).reshape(answer[2])
            with np.errstate(all="ignore"):
                beyond = ~(np.abs(out - self.value) <= self._bound)
            if (beyond & self._defined).any():
                yield name, out.reshape(self.shape)


def like(values, x):
    """Values in f64 as an array of x's library and type."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch.from_numpy(np.ascontiguousarray(values)).to(x.dtype).to(x.device)
    mx = sys.modules.get("mlx.core")
    if mx is not None and isinstance(x, mx.array):
        return mx.array(values.astype(np.float32)).astype(x.dtype)
    return values.astype(x.dtype)
