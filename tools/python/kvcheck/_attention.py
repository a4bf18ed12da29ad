"""Questions to the judge: attention, any case, two arrays. The words become those of the C++ library; it decides."""
import json
import operator
import os

import numpy as np

from . import _arrays, _core, _device
from ._errors import Error

__tracebackhide__ = True  # of pytest: a failure is shown at the test's own line

# Of the C++ library and the command line, too: a kernel of which nothing is said.
DEFAULT_PLAN = "stranger"


def number(name, x, kind):
    """x as a Python number. Errors: kvcheck.Error for what is none, and for an int with a fraction."""
    try:
        # Arrays of one element and numbers of numpy and torch are numbers too.
        return operator.index(x) if kind is int else float(x)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        words = "a whole number" if kind is int else "a number"
        raise Error(f"{name}={x!r}: {words} is needed", "usage", name) from None


def _in_range(name, x, least, most):
    whole = number(name, x, int)
    if not least <= whole <= most:
        raise Error(f"{name}={whole}: from {least} to {most}", "usage", name)
    return whole


def default_threads():
    """Of a call that says none: KVCHECK_THREADS, else the processors that this process may use, at most 16; the workers of
    pytest-xdist share them."""
    said = os.environ.get("KVCHECK_THREADS", "")
    if said:
        if not said.isdecimal() or not 1 <= int(said) <= 1024:
            raise Error(f"the environment variable KVCHECK_THREADS is {said!r}: a number of threads, 1 to 1024, or unset",
                        "usage", "KVCHECK_THREADS")
        return int(said)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    if workers.isdecimal() and int(workers) > 1:
        processors //= int(workers)
    return max(1, min(processors, 16))


def settings(plan=DEFAULT_PLAN, profile="", strict=False, rule="statistics", must_see=None, threads=None, rows=None, seed=1,
             save=None):
    """plan: the name of a known plan (kvcheck.plans()) or a text of fields."""
    must_see = "" if must_see is None else must_see if isinstance(must_see, str) else ",".join(must_see)
    for name, text in (("plan", plan), ("profile", profile), ("rule", rule)):
        if not isinstance(text, str):
            raise Error(f"{name}={text!r}: a text is needed", "usage", name)
    if threads is None:
        threads = default_threads()
    return _core.Settings(plan if "=" in plan else f"base={plan}", profile, bool(strict), rule, must_see,
                          _in_range("threads", threads, 1, 1024), _in_range("rows", 0 if rows is None else rows, 0, 2**63 - 1),
                          _in_range("seed", seed, 0, 2**64 - 1), "" if save is None else os.fspath(save))


def _window_of(window, causal):
    """(tokens that a query sees, its own included, or None; whether keys after its own are hidden by it)."""
    if isinstance(window, tuple | list) or getattr(window, "ndim", 0) == 1 and len(window) == 2:
        if len(window) != 2:
            raise Error(f"window={window!r}: tokens, or (left, right) as FlashAttention's window_size", "usage", "window")
        left, right = (number("window", side, int) for side in window)
        if left < -1 or right < -1:
            raise Error(f"window=({left}, {right}): tokens before and after the query's own, -1 for no limit", "usage",
                        "window")
        if right > 0 and not causal:  # FlashAttention takes it for 0 where causal
            raise Error(f"window=({left}, {right}): a window that ends {right} tokens after the query's own is no term of a "
                        "mask; give the band as a mask of bools (L, T)", "unsupported", "window")
        return (None if left == -1 else left + 1), right == 0
    tokens = number("window", window, int)
    if tokens == -1:
        return None, False
    if tokens < 1:
        raise Error(f"window={tokens}: a number counts tokens with the query's own, so that 1 is the least; FlashAttention's "
                    "window_size counts those before it: give the pair, (0, 0) for the query's own token alone; None, -1 or "
                    "(-1, -1) is no window", "usage", "window")
    return tokens, False


def _mask_text(mask, causal, window):
    terms = []
    if causal is None or isinstance(causal, np.bool_):
        causal = bool(causal)
    if not isinstance(causal, int | str):
        raise Error(f"causal={causal!r}: True, False, 'bottom_right' or 'top_left'", "usage", "causal")
    tokens, hides_later = (None, False) if window is None else _window_of(window, causal)
    if hides_later and not causal:
        causal = True
    if causal:
        alignment = "bottom_right" if causal is True else causal
        if alignment not in ("bottom_right", "top_left"):
            raise Error(f"causal='{causal}': True, 'bottom_right' or 'top_left'", "usage", "causal")
        terms.append(f"causal_{alignment}")
    if tokens is not None:
        terms.append(f"window:{tokens}")
    if isinstance(mask, str):
        if terms:
            raise Error("a mask that is a text says causal and window itself", "usage", "mask")
        return mask
    return "+".join(terms) or "none"


def mask_array(held):
    """A mask of integers as one of bools, where it holds nothing but 0 and 1."""
    data, kind = held
    if not kind.startswith(("int", "uint")):
        return held
    data = np.asarray(data)
    if not ((data == 0) | (data == 1)).all():
        raise Error(f"has type {kind} and other values than 0 and 1: a mask is bool (True may attend), integers 0 and 1 that "
                    "mean the same, or floats that are added to the scores", "illegal case", "array 'mask'")
    return data.astype(bool), "bool"


def attention_arrays(out, q, k, v, *, mask=None, sinks=None, alibi_slopes=None, lse=None, k_scale=None, v_scale=None,
                     cu_seqlens_q=None, cu_seqlens_k=None, cu_seqlens_q_padded=None, cu_seqlens_k_padded=None,
                     block_table=None, block_starts=None, kv_lens=None,
                     is_answered=True):
    for name, x in (("out", out), ("q", q), ("k", k), ("v", v)):
        if x is None and (name != "out" or is_answered):
            raise Error(f"array '{name}': None is no array", "missing data", f"array '{name}'")
    held = _arrays.held({
        "out": out, "q": q, "k": k, "v": v, "mask": None if isinstance(mask, str) else mask, "sinks": sinks,
        "alibi_slopes": alibi_slopes, "lse": lse, "k_scale": k_scale, "v_scale": v_scale,
        "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "cu_seqlens_q_padded": cu_seqlens_q_padded,
        "cu_seqlens_k_padded": cu_seqlens_k_padded, "block_table": block_table,
        "block_starts": block_starts, "kv_lens": kv_lens})
    if "mask" in held:
        held["mask"] = mask_array(held["mask"])
    return held


def attention_words(*, mask=None, causal=False, window=None, scale=None, softcap=None, layout="bhsd", lse_layout=None,
                    lse_base2=False):
    words = _core.CallWords()
    words.mask = _mask_text(mask, causal, window)
    words.scale = None if scale is None else number("scale", scale, float)
    softcap = None if softcap is None else number("softcap", softcap, float)
    words.softcap = softcap or None
    words.layout = layout
    words.lse_layout = lse_layout or ""
    words.lse_base2 = lse_base2
    return words


def device_sums(q, k, v, layout, device, *not_dense):
    """What evaluates the heads of a call where its tensors lie, or None. not_dense: arguments with which K and V are no
    plain tensors of all sequences. Errors: kvcheck.Error for a device that is none."""
    if device not in (None, "cpu", "torch"):
        raise Error(f"device={device!r}: None, 'cpu' or 'torch'", "usage", "device")
    if any(x is not None for x in not_dense):
        return None
    return _device.head_sums(q, k, v, layout, device)


def judge_attention(out, q, k, v, *, mask=None, causal=False, window=None, scale=None, softcap=None, sinks=None,
                    alibi_slopes=None, lse=None, lse_base2=False, k_scale=None, v_scale=None, layout="bhsd",
                    lse_layout=None, cu_seqlens_q=None, cu_seqlens_k=None, cu_seqlens_q_padded=None,
                    cu_seqlens_k_padded=None, block_table=None, block_starts=None, kv_lens=None, plan=DEFAULT_PLAN,
                    profile="", strict=False, rule="statistics", must_see=None, rows=None, seed=1, threads=None, device=None,
                    save=None):
    """The verdict on `out`, each element of which may be as far from the exact value as `plan` explains, and no farther.

    Shapes: q (B, Hq, L, D), k (B, Hkv, T, D), v (B, Hkv, T, Dv), out (B, Hq, L, Dv), their axes in the order of `layout`
    ("bhsd", "bshd", "sbhd", "hsd", ...: b batch row, h head, s token, d channel; b may be left out); lse (B, Hq, L), the
    natural logarithm or with lse_base2 that of base 2, in the order of `lse_layout` ("bhs"); in f32, beside an output in
    f64 in f64; an lse in f64 beside other outputs is judged as the f32 next to it.
    mask: bool (True may attend; integers 0 and 1 mean the same) or additive, of shape (T), (L, T), (B, L, T) or (B, Hq, L, T), where an extent may be 1;
        or a text of kvcheck ("causal_bottom_right+left_pad:0,5").
    causal: True or "bottom_right": the last query sees the last key (FlashAttention); "top_left": query l sees the keys up
        to l (torch's is_causal). window: tokens, the query's own included; or (left, right) as FlashAttention's
        window_size, tokens before and after it, where right is 0 (which is causal) or -1 (no limit), as -1 is of left. scale: 1 / sqrt(D) where None.
    softcap: scores become softcap tanh(score / softcap). sinks (Hq): one more logit per head, whose value is 0.
    k_scale, v_scale: what multiplies codes in fp8 or int8: a number, one for each of up to 16 heads, or one for each
        vector (B, Hkv, T) in f32.
    cu_seqlens_q, cu_seqlens_k (N + 1): starts of packed sequences; layout "shd", q (tokens, Hq, D), lse (Hq, tokens).
        With padding between the sequences they are the sums of the lengths, and cu_seqlens_q_padded, cu_seqlens_k_padded
        (N + 1) say where each starts (cuDNN, TransformerEngine); the padding is not judged.
    block_table (N, pages), kv_lens (N): K and V are (pages, tokens of a page, Hkv, D) of layout "bshd" or "shd". With
        block_starts (N + 1) block_table is one list, the pages of all sequences one behind the other (FlashInfer's
        kv_indices and kv_indptr). A mask of packed or paged sequences is one list of bools, the (L, T) of each in turn.
        Queries of a sequence without keys are fully masked rows, which `profile` says what to expect of (0).
    plan: how the kernel computes: a name of kvcheck.plans(), or a text of fields.
    profile: which conventions it follows ("masked_row=nan"). strict: plan="auto", which claims nothing, is refused.
    rule: "statistics", by which what roundings of random phase would make once in 1e12 cases fails; or "bound", by which
        only what no rounding can make does, which sees less the more keys there are.
    must_see: faults by their names, "standard" (all; the default under strict) or "none": an output that passes where such
        a fault would have been seen nowhere is MISTRUSTED. What a PASS could not see stands in its first line.
    device: where sums over keys are evaluated. None: on the GPU where q, k and v are torch tensors of one, of plain types,
        with masks that no head has of its own and no biases. Scores and sums take at most kvcheck._device.MEMORY bytes there
        at once (more where a single head needs it), beside K and V of the same heads in float64; rows that they do not decide
        are evaluated on the host. "cpu": all on the host. "torch": by torch wherever the tensors lie. The verdict is the same.
    rows: judge a sample of so many rows of each output (first and last ones, edges of query tiles, masked ones, the rest
        at random by `seed`); the verdict says what was judged, and what a fault has as a chance to be missed.
    save: a file that is written where the answer does not pass; verdict.command judges it again.
    Errors: kvcheck.Error for a question that cannot be put.
    """
    arrays = attention_arrays(out, q, k, v, mask=mask, sinks=sinks, alibi_slopes=alibi_slopes, lse=lse, k_scale=k_scale,
                              v_scale=v_scale, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                              cu_seqlens_q_padded=cu_seqlens_q_padded, cu_seqlens_k_padded=cu_seqlens_k_padded,
                              block_table=block_table, block_starts=block_starts, kv_lens=kv_lens)
    words = attention_words(mask=mask, causal=causal, window=window, scale=scale, softcap=softcap, layout=layout,
                            lse_layout=lse_layout, lse_base2=lse_base2)
    return _core.judge_attention(arrays, words, settings(plan, profile, strict, rule, must_see, threads, rows, seed, save),
                                 device_sums(q, k, v, layout, device, k_scale, v_scale, cu_seqlens_q, block_table))


def reference_attention(q, k, v, *, mask=None, causal=False, window=None, scale=None, softcap=None, sinks=None,
                        alibi_slopes=None, k_scale=None, v_scale=None, layout="bhsd", lse=False, lse_base2=False,
                        dtype=None, plan=DEFAULT_PLAN, profile="", threads=None):
    """Attention in double-double, and how far a right answer may be off.

    dtype: of the output whose bound is asked (default: that of q). The rest: judge_attention.
    Returns {"out": (value, low, bound)}, with lse=True also "lse": arrays of f64 whose axes are (B, Hq, L, Dv) and (B,
    Hq, L), whatever the layout. value + low is the exact value to some 30 digits; NaN where none is defined.
    """
    arrays = attention_arrays(None, q, k, v, mask=mask, sinks=sinks, alibi_slopes=alibi_slopes, k_scale=k_scale,
                              v_scale=v_scale, is_answered=False)
    words = attention_words(mask=mask, causal=causal, window=window, scale=scale, softcap=softcap, layout=layout,
                            lse_base2=lse_base2)
    kind = arrays["q"][1] if dtype is None else _arrays.type_named(dtype)
    return _core.reference_attention(arrays, words, kind, lse, settings(plan, profile, threads=threads))


def judge_case(case, inputs, outputs, *, plan=DEFAULT_PLAN, profile="", strict=False, rule="statistics", must_see=None,
               rows=None, seed=1, threads=None, save=None):
    """The verdict on the answer to any case of attention, a codec or a tensor, as its text.

    inputs, outputs: dicts of arrays by the names that the case gives its tensors (data=file; of a case with
    data=REGIME:SEED the inputs are drawn, and `inputs` is not read). The grammar: reference/README.md, section 3.
    """
    verdict = _core.judge_case(case, _arrays.held(inputs or {}), _arrays.held(outputs),
                               settings(plan, profile, strict, rule, must_see, threads, rows, seed, save))
    judged = [output["name"] for output in json.loads(verdict.to_json())["cases"][0].get("outputs", [])]
    for name in outputs:
        if judged and name not in judged:
            raise Error(f"the case has the outputs {', '.join(judged)}, and no '{name}'", "usage", f"array '{name}'")
    return verdict


def judge_arrays(want, got, rule="exact", *, strict=False, threads=None, save=None):
    """The verdict on two arrays of one type and shape under a rule: "exact", "ulp:2", "abs:2^-20,rel:0.001"."""
    return _core.judge_arrays(_arrays.held({"want": want, "got": got}), rule,
                              settings(strict=strict, threads=threads, save=save))


def plans():
    """{name: where its numbers come from} of the known plans."""
    return dict(_core.plans())
