"""Attention as models call it: ALL_ATTENTION_FUNCTIONS["sdpa"], the eager functions of the model files, and the plan and
profile of each answer.

sdpa     integrations/sdpa_attention.py; what torch does with the call is seen by a function put in its place, so that
         the plan is that of the kernel that ran (golden/make/plans_of_libraries.md)
eager    eager_attention_forward of modeling_llama, of modeling_gemma2 with softcap, of modeling_gpt_oss with sinks.
         Products are rounded to the type of the operands, then scores after the scaling, and the probabilities once more
"""
import types

import numpy as np
import torch
from torch.nn.attention import SDPBackend
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2_eager
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss_eager
from transformers.models.llama.modeling_llama import eager_attention_forward as llama_eager
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvcheck_adapter import Unsupported, case_mask, from_float32
from kvcheck_adapter.torch_arrays import NAMES, TYPES, to_numpy, to_torch

HALVES = ("f16", "bf16")
KINDS = ("f32", *HALVES)
_sdpa = torch.nn.functional.scaled_dot_product_attention
_kernels = []  # that the last call would take


def _seen_sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    choice = torch._fused_sdp_choice(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                                     enable_gqa=enable_gqa)
    _kernels.append(SDPBackend(choice))
    return _sdpa(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                 enable_gqa=enable_gqa)


torch.nn.functional.scaled_dot_product_attention = _seen_sdpa


def eager_plan(kind):
    """As torch's math path, but for the types in which things are kept. The product q.k is summed in f32 and rounded to
    the type: no term passes more than two roundings of it. Scaling: the constant, the product; then stored. A mask is
    added, and softcap computed, in the type as well, which `scores` says. Softmax in f32, its result rounded."""
    plan = "base=torch_cpu_math scale_roundings=2"
    return plan if kind not in HALVES else f"{plan} qk={kind}:depth:2 scores={kind} p={kind}"


def sdpa_plan(kind):
    if _kernels and _kernels[-1] == SDPBackend.FLASH_ATTENTION:
        return f"base=torch_cpu_flash_{kind}"
    return "base=torch_cpu_math"


def profile_of(implementation, mask):
    """Of rows that see nothing. sdpa: zero. eager: the lowest finite value is added to every score: in f32 and bf16 that
    leaves this value and so the mean of V; -65504 of f16 leaves something of scores above 16, and nothing is said. With
    -inf: NaN."""
    if implementation == "sdpa":
        return "masked_row=zero mask_value=-inf"
    if mask is not None and torch.isneginf(mask).any():
        return "masked_row=nan mask_value=-inf maximum=all"
    row = "any" if mask is not None and mask.dtype == torch.float16 else "mean"
    return f"masked_row={row} mask_value=lowest maximum=all"


def added(mask, dtype):
    """A boolean mask as eager attention takes it (masking_utils.eager_mask)."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, torch.zeros((), dtype=dtype), torch.finfo(dtype).min)


def attend(implementation, q, k, v, mask, scale, is_causal=None, softcap=None, sinks=None):
    """(out (B, Hq, L, Dv), plan, profile). mask: (B or 1, 1 or Hq, L, T), boolean or additive, or None."""
    kind = NAMES[q.dtype]
    module = types.SimpleNamespace(num_key_value_groups=q.shape[1] // k.shape[1], is_causal=True, training=False)
    with torch.no_grad():
        if implementation == "sdpa":
            if softcap is not None or sinks is not None:
                raise Unsupported("sdpa has no softcap and no sinks")
            _kernels.clear()
            out, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](module, q, k, v, mask, scaling=scale, is_causal=is_causal)
            return out.transpose(1, 2), sdpa_plan(kind), profile_of("sdpa", mask)
        if sinks is not None:
            if softcap is not None or kind != "f32":
                raise Unsupported("sinks are those of gpt-oss: float32 here, without softcap")
            module.sinks = sinks
            out, _ = gpt_oss_eager(module, q, k, v, mask, scaling=scale)
        elif softcap is not None:
            out, _ = gemma2_eager(module, q, k, v, mask, scaling=scale, softcap=softcap)
        else:
            out, _ = llama_eager(module, q, k, v, mask, scaling=scale)
        return out.transpose(1, 2), eager_plan(kind), profile_of("eager", mask)


def case_argument(fields, inputs):
    """(mask of rank 4 or None, is_causal) of a case. As the library's mask functions do, none is made where is_causal or
    its absence says the same."""
    text = str(fields.get("mask", "none"))
    queries, keys = int(fields["l"]), int(fields["t"])
    if text == "none" or (text == "causal_bottom_right" and queries == 1):
        return None, False
    if text == "causal_top_left" and 1 < queries <= keys or text == "causal_bottom_right" and queries == keys:
        return None, True
    mask = case_mask(fields, inputs)
    if isinstance(mask, str):
        mask = np.tri(queries, keys, keys - queries, dtype=bool)
    if mask.dtype == np.bool_:
        tensor = torch.from_numpy(np.ascontiguousarray(mask))
    else:
        kind = text.rsplit(":", 1)[1]
        tensor = to_torch(from_float32(mask, kind) if text.count("+") else mask, kind)
    while tensor.ndim < 4:
        tensor = tensor[None]
    return tensor, False


def attention(adapter, implementation, fields, inputs):
    kind = fields["q"]
    if kind not in KINDS or any(fields[name] != kind for name in ("k", "v", "out")):
        raise Unsupported("queries, K, V and the output are of one type: f32, f16 or bf16")
    if "alibi_slopes" in inputs or fields.get("lse", "none") != "none":
        raise Unsupported("no ALiBi and no log-sum-exp")
    q, k, v = (to_torch(inputs[name], kind) for name in ("q", "k", "v"))
    mask, is_causal = case_argument(fields, inputs)
    if implementation == "eager":
        if is_causal:
            mask = torch.ones(q.shape[2], k.shape[2]).tril().bool()[None, None]
        mask = added(mask, TYPES[kind])
    sinks = to_torch(inputs["sinks"], fields["sinks"]) if "sinks" in inputs else None
    if sinks is not None and fields["sinks"] != kind:
        raise Unsupported("sinks are of the type of the queries")
    scale = float(fields.get("scale") or int(fields["d"])**-0.5)
    softcap = float(fields["softcap"]) if fields.get("softcap") else None
    out, plan, profile = attend(implementation, q, k, v, mask, scale, is_causal, softcap, sinks)
    adapter.declare(plan=plan, profile=profile)
    return {"out": to_numpy(out)}


def spaces(implementation):
    eager = implementation == "eager"
    return [{"kind": "attention", "q": [kind], "k": [kind], "v": [kind], "out": "q", "lse": False, "alibi": False,
             "sinks": eager and kind == "f32", "softcap": eager, "against_original": False} for kind in KINDS]
