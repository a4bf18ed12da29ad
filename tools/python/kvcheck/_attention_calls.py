"""Attention of which a test shows the inputs. Calls of scaled_dot_product_attention (torch, mlx) and of kernels that are
named by kvcheck.audit.attention are kept while a test runs; an assertion about the output of one is asked about faults of
attention (kvcheck faults list), and told how large an error the data explain. Of what is not asked, NotAsked says why.
"""
import inspect
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
# Calls kept of a test; products of q and k in a question, which the reference takes in double-double and each fault anew:
# some seconds, and of a larger call the last queries are asked about; calls of a test that are asked about under one
# tolerance: the others say the same.
MOST_CALLS = 16
MOST_PRODUCTS = 1 << 26
MOST_ASKED = 2




class NotAsked(Exception):
    """Why faults of attention are not asked, as the report says it."""


UNKNOWN_KERNEL = "no call of a kernel that is known: name yours by kvcheck.audit.attention"
OTHER_ARRAYS = "compares no output of the calls that are known"
TOO_LARGE = f"too large: one query of one group of heads takes more than {MOST_PRODUCTS} products"
GONE = "inputs that the test holds no longer"
OTHER_QUESTION = "a call that kvcheck does not judge (dropout, another rank of q, types without a bound)"


def _torch_keywords(attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        return None
    return {"mask": attn_mask, "causal": "top_left" if is_causal else False, "scale": scale}


def _mlx_keywords(*, scale, mask=None, sinks=None, stream=None):
    is_causal = isinstance(mask, str)
    if is_causal and mask != "causal":
        return None
    return {"mask": None if is_causal else mask, "causal": is_causal, "scale": scale, "sinks": sinks}


# The words of kvcheck.judge_attention that a question of the audit has, and how kernels call them too.
WORDS = {"mask": "mask", "causal": "causal", "window": "window", "scale": "scale", "softcap": "softcap", "sinks": "sinks",
         "attn_mask": "mask", "window_size": "window", "sliding_window": "window", "sm_scale": "scale", "softmax_scale": "scale",
         "logits_soft_cap": "softcap", "layout": "layout"}


def meaning_of(function, ignored=(), **fixed):
    """What the arguments of a kernel behind q, k and v mean as those of kvcheck.judge_attention, by their names."""
    try:
        names = [name for name, parameter in inspect.signature(function).parameters.items()
                 if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)][3:]
        defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    except (TypeError, ValueError):  # a builtin that does not say
        names, defaults = [], {}

    def meant(*arguments, **keywords):
        if len(arguments) > len(names):
            raise NotAsked(f"an argument without a name of {function_name(function)}")
        asked = dict(fixed)
        for name, value in {**dict(zip(names, arguments)), **keywords}.items():
            is_default = name in defaults and (value is defaults[name] or isinstance(value, int | float | str)
                                               and value == defaults[name])
            if name in WORDS:
                asked[WORDS[name]] = value
            elif value is not None and not is_default and name not in ignored:
                raise NotAsked(f"argument '{name}' of {function_name(function)} is no word of kvcheck.judge_attention: say what "
                               "it means with meaning=, or ignored=")
        return asked
    return meant


def function_name(function):
    return getattr(function, "__qualname__", type(function).__name__)


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


def _permuted(x, order):
    """x with its axes in another order, whatever the library."""
    if order == list(range(len(order))):
        return x
    return x.permute(*order) if hasattr(x, "permute") else x.transpose(order)


class Call:
    """One call: q, k, v, its keywords, and its output, all as the test has them, as long as it has them."""

    def __init__(self, out, arguments, keywords, meaning):
        if isinstance(out, tuple | list) and out:  # (out, lse)
            out = out[0]
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
        """(q, k, v, the order of their axes, keywords of judge_attention). Raises NotAsked."""
        arguments, keywords, meaning = self._asked
        try:
            arguments, named = [x() for x in arguments], {name: x() for name, x in keywords.items()}
        except LookupError:
            raise NotAsked(GONE) from None
        given = [*arguments[:3], *(named.pop(name) for name in ("query", "key", "value", "q", "k", "v") if name in named)]
        if len(given) != 3:
            raise NotAsked(OTHER_QUESTION)
        try:
            meant = meaning(*arguments[3:], **named)
        except TypeError:
            raise NotAsked(OTHER_QUESTION) from None
        if meant is None or getattr(given[0], "ndim", 0) not in (3, 4):
            raise NotAsked(OTHER_QUESTION)
        meant = dict(meant)
        layout = meant.pop("layout", None) or ("bhsd" if given[0].ndim == 4 else "hsd")
        if sorted(layout) != sorted("bhsd"[4 - given[0].ndim:]):
            raise NotAsked(f"layout '{layout}' of an array of {given[0].ndim} axes")
        return *given, layout, meant


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


class Part:
    """The part of a call that is asked about: all of it, or its last queries, of few heads where one query of all is too
    much. rows: how many of of_rows queries; output (B, H, L, D) of a part as that of the call."""

    def __init__(self, q, k, v, keywords):
        batch, heads, queries, channels = q.shape
        groups, keys = k.shape[1], k.shape[2]
        each = max(keys * channels, 1)
        keywords = dict(keywords)
        self.rows, self.of_rows = queries, queries
        take_batch, take_groups, take = batch, groups, queries
        if batch * heads * queries * each > MOST_PRODUCTS:
            take = MOST_PRODUCTS // (batch * heads * each)
            if take < 1:  # one query of few heads
                take_batch, take_groups, take = 1, min(groups, 2), 1
            if take_batch * take_groups * (heads // groups) * take * each > MOST_PRODUCTS:
                raise NotAsked(TOO_LARGE)
            if keywords.get("causal") == "top_left":
                if keys < queries:
                    raise NotAsked(TOO_LARGE)
                # What the last queries see of the first keys is the same from the other corner.
                keywords["causal"] = "bottom_right"
                k, v = k[:, :, :queries], v[:, :, :queries]
                keywords["mask"] = self._last(keywords.get("mask"), -1, queries)
            self.rows = take
        take_heads = take_groups * (heads // groups)
        self.index = np.s_[:take_batch, :take_heads, queries - take:]
        self.q = q[self.index]
        self.k, self.v = (x[:take_batch, :take_groups] for x in (k, v))
        mask = keywords.get("mask")
        if isinstance(mask, str) and self.rows < queries:
            raise NotAsked(f"{TOO_LARGE}, and its mask is a text")
        if mask is not None and self.rows < queries:
            shape = mask.shape
            if len(shape) >= 2 and shape[-2] != 1:
                mask = mask[..., queries - take:, :]
            if len(shape) == 4 and shape[1] != 1:
                mask = mask[:, :take_heads]
            if len(shape) >= 3 and shape[0] != 1:
                mask = mask[:take_batch]
            keywords["mask"] = mask
        if keywords.get("sinks") is not None:
            keywords["sinks"] = keywords["sinks"][:take_heads]
        self.keywords = keywords

    @staticmethod
    def _last(mask, axis, count):
        return mask if mask is None or mask.shape[axis] == 1 else mask[..., :count]


class Finding:
    """What the data of a call say. justified: the largest distance of two right answers, one in the type of the output and
    one in that of what it is compared with; ratio: of the error of the output to its bound; faults(): outputs that are no
    right answers. rows of of_rows queries were asked about. Raises NotAsked."""

    def __init__(self, call, other):
        q, k, v, layout, keywords = call.question()
        try:
            answered = call.out
        except LookupError:
            raise NotAsked(GONE) from None
        self._order = [layout.index(axis) for axis in ("bhsd" if len(layout) == 4 else "hsd")]
        q, k, v = (self._four(_permuted(x, self._order)) for x in (q, k, v))
        part = Part(q, k, v, keywords)
        self._part = part
        self.rows, self.of_rows = part.rows, part.of_rows
        self._plan = _attention.settings(PLAN)
        own, bounds = _arrays.of(answered, "out")[1], {}
        for kind in {own, other}:
            self.value, _, bounds[kind] = _attention.reference_attention(part.q, part.k, part.v, plan=PLAN, dtype=kind,
                                                                         **part.keywords)["out"]
        self._bound = bounds[own]
        defined = np.isfinite(self.value) & np.isfinite(self._bound)
        if not defined.any():
            raise NotAsked("no element has a bound")
        self._defined = defined
        self.justified = float(np.max((bounds[own] + bounds[other])[defined]))
        raw = call.values()
        self._whole = self._four(raw.transpose(self._order))  # (B, H, L, D)
        out = self._whole[part.index]
        with np.errstate(all="ignore"):
            self.ratio = float(np.max((np.abs(out - self.value) / self._bound)[defined]))
        answered = self._four(_permuted(answered, self._order))[part.index]  # of its own type
        verdict = _attention.judge_attention(answered, part.q, part.k, part.v, plan=PLAN, rows=1, **part.keywords)
        self._case = verdict.case
        mask = part.keywords.get("mask")
        mask = None if mask is None else self._mask_as_in_case(_attention.mask_array(_arrays.of(mask, "mask")))
        self._inputs = {**_arrays.held({"q": part.q, "k": part.k, "v": part.v, "sinks": part.keywords.get("sinks")}),
                        **({"mask": mask} if mask else {})}

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
        """(name, output in f64, its axes as the call has them) of each fault that the bound tells from a right answer."""
        for name in FAULTS:
            try:
                answer = _core.answer(self._case, self._inputs, f"fault:{name}", self._plan)["out"]
            except Error:
                continue  # no such thing as this fault in this case
            out = _arrays.widened(answer[0], answer[1]).reshape(answer[2])
            with np.errstate(all="ignore"):
                beyond = ~(np.abs(out - self.value) <= self._bound)
            if (beyond & self._defined).any():
                yield name, self._as_called(out)

    def _as_called(self, out):
        """The output of the call, with `out` in place of the part that was asked about."""
        whole = np.array(self._whole)
        whole[self._part.index] = out
        return (whole if len(self._order) == 4 else whole[0]).transpose(np.argsort(self._order))


def like(values, x):
    """Values in f64 as an array of x's library and type."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch.from_numpy(np.ascontiguousarray(values)).to(x.dtype).to(x.device)
    mx = sys.modules.get("mlx.core")
    if mx is not None and isinstance(x, mx.array):
        return mx.array(values.astype(np.float32)).astype(x.dtype)
    return values.astype(x.dtype)
