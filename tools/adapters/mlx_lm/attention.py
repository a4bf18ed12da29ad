"""Attention and codecs: mx.fast.scaled_dot_product_attention, mlx-lm's quantized attention, mx.quantize, and the plan of
each answer (reference/spec/known_plans.cc; golden/make/plans_of_libraries.md has the reasons)."""
import mlx.core as mx
import numpy as np
from mlx_lm.models import base

from kvcheck_adapter import Unsupported, case_mask, from_float32, parse_format
from kvcheck_adapter.mlx_arrays import TYPES, is_power_of_two, sdpa_plan, to_mlx, to_numpy


def quantized_plan(kind, scale):
    plan = f"base=mlx_lm_quantized_{kind} dequantize=stored"
    if is_power_of_two(scale):
        plan += " scale_roundings=0" if kind == "f32" else " prescale=none"
    return plan


class Quantized:
    """What base.scaled_dot_product_attention asks of a cache, to know that it is quantized."""

    def __init__(self, bits, group_size):
        self.bits, self.group_size = bits, group_size


def operand(name, fmt, inputs):
    if fmt.is_plain:
        return to_mlx(inputs[name], fmt.type)
    return (mx.array(inputs[f"{name}_codes"]), to_mlx(inputs[f"{name}_scales"], fmt.type),
            to_mlx(inputs[f"{name}_biases"], fmt.type))


def mask_argument(fields, inputs):
    """The mask as MLX takes it, and the profile that follows: a boolean one puts the lowest finite value of the type in
    place of hidden scores, so that a row which sees nothing is the mean of V."""
    text = str(fields.get("mask", "none"))
    mask = case_mask(fields, inputs)
    if mask is None:
        return None, ""
    if isinstance(mask, str):
        return mask, "masked_row=mean mask_value=lowest"
    if mask.dtype == np.bool_:
        return mx.array(mask), "masked_row=mean mask_value=lowest"
    kind = text.rsplit(":", 1)[1]
    if text.count("+"):  # case_mask widened it to hide what other terms hide
        mask = from_float32(mask, kind)
    return to_mlx(mask, kind), "masked_row=nan"


def attention(adapter, fields, inputs):
    kind, k, v = fields["q"], parse_format(fields["k"]), parse_format(fields["v"])
    if fields.get("softcap") or fields.get("alibi", "no") not in ("no", False) or fields.get("lse", "none") != "none":
        raise Unsupported("no softcap, ALiBi or log-sum-exp")
    if fields["out"] != kind or k.type != kind or v.type != kind or k[1:] != v[1:]:
        raise Unsupported("queries, K, V and the output are of one type, K and V of one format")
    scale = float(fields.get("scale") or int(fields["d"])**-0.5)
    mask, profile = mask_argument(fields, inputs)
    sinks = None
    if "sinks" in inputs:
        if not k.is_plain or fields["sinks"] != kind:
            raise Unsupported("sinks are of the queries' type, and not there in quantized attention")
        sinks = to_mlx(inputs["sinks"], kind)
    cache = None if k.is_plain else Quantized(k.bits, k.group)
    q = to_mlx(inputs["q"], kind)
    out = base.scaled_dot_product_attention(q, operand("k", k, inputs), operand("v", v, inputs), cache=cache,
                                            scale=scale, mask=mask, sinks=sinks)
    adapter.declare(plan=(sdpa_plan if k.is_plain else quantized_plan)(kind, scale),
                    profile=f"decode=two_roundings {profile}".strip())
    mx.eval(out, q)
    if to_numpy(q).tobytes() != inputs["q"].tobytes():
        inputs["q"][...] = to_numpy(q)  # the caller's queries changed, and here are the caller's
    return {"out": to_numpy(out)}


def codec(fields, inputs):
    fmt = parse_format(fields["format"])
    if fmt.is_plain or fmt.type != fields["x"]:
        raise Unsupported("affine formats, with scales of the type of the rows")
    options = {"group_size": fmt.group, "bits": fmt.bits}
    if fields["op"] == "decode":
        parts = (mx.array(inputs["codes"]), to_mlx(inputs["scales"], fmt.type), to_mlx(inputs["biases"], fmt.type))
    else:
        parts = mx.quantize(to_mlx(inputs["x"], fmt.type), **options)
    if fields["op"] == "encode":
        mx.eval(parts)
        return dict(zip(("codes", "scales", "biases"), map(to_numpy, parts)))
    y = mx.dequantize(*parts, **options)
    mx.eval(y)
    return {"y": to_numpy(y)}


def spaces():
    made = []
    for kind in TYPES:
        masks = ["none", "causal_*", "window:*", "left_pad:*", "bool:*"]
        masks += [f"additive:*:{name}" for name in (TYPES if kind == "f32" else (kind,))]
        common = {"kind": "attention", "q": [kind], "out": "q", "lse": False, "softcap": False, "alibi": False,
                  "same_format": True}
        made.append({**common, "k": [kind], "v": [kind], "masks": masks, "sinks": True})
        coded = [f"affine:*:{kind}"]
        made.append({**common, "k": coded, "v": coded, "masks": masks, "sinks": False})
        made.append({"kind": "codec", "formats": coded, "operations": ["encode", "decode", "round_trip"], "x": [kind]})
    return made
