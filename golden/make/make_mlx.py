"""Makes mlx_affine.h5, mlx_sdpa.h5 and mlx_lm_quantized.h5 from MLX and mlx-lm on a CPU.

Usage: python make_mlx.py [DIRECTORY]     (default: ../data beside this file)
Needs the packages of requirements-mlx.txt. What the libraries compute and why each plan and profile is the one stored
is in plans_of_libraries.md.
"""
import importlib.metadata
import pathlib
import sys

import mlx.core as mx
import numpy as np
from mlx_lm.models.base import quantized_scaled_dot_product_attention

import kvcheck_golden as kg
import machine
import regimes
from attention_problem import Problem
from mlx_problems import PROBLEMS

MLX = importlib.metadata.version("mlx")
MLX_LM = importlib.metadata.version("mlx-lm")
TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
KINDS = tuple(TYPES)
BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
COARSE_BITS = 5  # with so few bits half a step is more than a tenth of the data of regimes.codec_rows


def to_mlx(stored, kind):
    array = mx.array(stored)
    return array.view(mx.bfloat16) if kind == "bf16" else array


def from_mlx(array):
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)


# -------------------------------------------------------------------------------------- codecs


def codec_text(direction, kind, bits, group, rows, head_dim):
    return (f"codec op={direction} format=affine:{bits}:g{group}:{kind} x={kind} rows={rows} d={head_dim} data=file")


def encoded(x, kind, bits, group):
    """mx.quantize: the three stored tensors as numpy arrays."""
    codes, scales, biases = mx.quantize(to_mlx(x, kind), group_size=group, bits=bits)
    return np.array(codes), from_mlx(scales), from_mlx(biases)


def decoded(codes, scales, biases, kind, bits, group):
    y = mx.dequantize(mx.array(codes), to_mlx(scales, kind), to_mlx(biases, kind), group_size=group, bits=bits)
    assert y.dtype == TYPES[kind]
    return from_mlx(y)


def there_and_back(x, kind, bits, group):
    return decoded(*encoded(x, kind, bits, group), kind, bits, group)


def coded_tensors(parts, kind, bits, group, prefix=""):
    codes, scales, biases = parts
    kv_format = f"affine:{bits}:g{group}:{kind}"
    return {prefix + "codes": kg.Typed(codes, "uint32", kv_format=kv_format),
            prefix + "scales": regimes.typed(scales, kind), prefix + "biases": regimes.typed(biases, kind)}


def record(implementation, **fields):
    return dict(implementation=implementation, machine=machine.describe(), **fields)


def make_affine(path):
    head_dim = 128
    with kg.Writer(path, source=f"mlx {MLX}", command="python golden/make/make_mlx.py") as writer:
        for kind in KINDS:
            for bits in BITS:
                for group in GROUPS:
                    x = regimes.codec_rows(kind, bits, head_dim, regimes.generator(f"affine.{kind}.{bits}"))
                    add_codec(writer, f"b{bits}.g{group}.{kind}", x, kind, bits, group)
            for bits in (4, 6, 8):
                families = tuple(f for f in regimes.CODEC_ROWS if kind != "f16" or f != "f16_range")
                x = regimes.codec_rows(kind, bits, head_dim, regimes.generator(f"round_trip.{kind}.{bits}"), families)
                add_round_trip(writer, f"b{bits}.g64.{kind}", x, there_and_back(x, kind, bits, 64), kind, bits, 64)
            # Rows that hold NaN, infinity, or a range beyond the type's: only codes with a meaning are judged.
            special = regimes.codec_rows(kind, 4, head_dim, regimes.generator(f"special.{kind}"),
                                         ("nan", "infinity", "range_overflow", "gauss"))
            add_codec(writer, f"special.b4.g64.{kind}", special, kind, 4, 64)
        x = regimes.codec_rows("f16", 8, head_dim, regimes.generator("overflow"), ("gauss", "f16_range"))
        add_round_trip(writer, "overflow.b8.g64.f16", x, there_and_back(x, "f16", 8, 64), "f16", 8, 64)


def add_codec(writer, name, x, kind, bits, group):
    parts = encoded(x, kind, bits, group)
    y = decoded(*parts, kind, bits, group)
    rows, head_dim = x.shape
    case = writer.case(f"encode.{name}", codec_text("encode", kind, bits, group, rows, head_dim),
                       {"x": regimes.typed(x, kind)})
    case.observed("mlx", coded_tensors(parts, kind, bits, group), **record("mx.quantize", version=f"mlx {MLX}"))
    case = writer.case(f"decode.{name}", codec_text("decode", kind, bits, group, rows, head_dim),
                       coded_tensors(parts, kind, bits, group))
    case.observed("mlx", {"y": regimes.typed(y, kind)},
                  **record("mx.dequantize", version=f"mlx {MLX}", profile="decode=two_roundings"))


def add_round_trip(writer, name, x, y, kind, bits, group):
    rows, head_dim = x.shape
    expectation = {}
    if not np.isfinite(regimes.widen(y, kind)).all():
        expectation = dict(expect="MISTRUSTED", reason="code times scale leaves float16 before the bias is added: "
                           "such rows have no bound")
    elif bits <= COARSE_BITS:
        expectation = dict(expect="MISTRUSTED", reason=f"a step of {bits} bits is a large part of these data: a round "
                           "trip within it proves little; the codes are judged bit for bit by the cases encode and "
                           "decode")
    case = writer.case(f"round_trip.{name}", codec_text("round_trip", kind, bits, group, rows, head_dim),
                       {"x": regimes.typed(x, kind)})
    case.observed("mlx", {"y": regimes.typed(y, kind)},
                  **record("mx.dequantize(mx.quantize(x))", version=f"mlx {MLX}", profile="decode=two_roundings",
                           **expectation))


# ----------------------------------------------------------------------------------- attention


def sdpa_plan(problem, base):
    plan = f"base={base}_{problem.kind}"
    if problem.scale_is_exact():
        plan += " scale_roundings=0" if problem.kind == "f32" else " prescale=none"
    return plan


def sdpa_profile(problem):
    """A boolean or causal mask puts the lowest finite value of the type in place of a hidden score."""
    if problem.array == "bool" or problem.stated_mask() is not None:
        return "masked_row=mean mask_value=lowest"
    if problem.additive_hides:
        return "masked_row=nan"
    return ""


def mask_argument(problem):
    """The mask as MLX takes it: "causal", an array, or nothing."""
    stated = problem.stated_mask()
    if problem.mask is not None:
        assert stated is None
        return mx.array(problem.mask) if problem.array == "bool" else to_mlx(problem.mask, problem.additive_kind)
    if stated is None:
        return None
    if problem.causal and not problem.window and not problem.left_pad:
        return "causal"
    return mx.array(stated)


def sdpa(problem):
    sinks = None if problem.sink_values is None else to_mlx(problem.sink_values, problem.kind)
    q, k, v = (to_mlx(a, problem.kind) for a in (problem.q, problem.k, problem.v))
    out = mx.fast.scaled_dot_product_attention(q, k, v, scale=problem.scale, mask=mask_argument(problem), sinks=sinks)
    return from_mlx(out)


def add_sdpa(writer, problem, plan="", profile=None, **expectation):
    case = writer.case(problem.name, problem.case_text(), problem.inputs())
    case.observed("mlx", {"out": regimes.typed(sdpa(problem), problem.kind)},
                  **record("mx.fast.scaled_dot_product_attention", version=f"mlx {MLX}",
                           plan=plan or sdpa_plan(problem, "mlx_cpu_sdpa"),
                           profile=sdpa_profile(problem) if profile is None else profile, **expectation))


def make_sdpa(path):
    with kg.Writer(path, source=f"mlx {MLX}", command="python golden/make/make_mlx.py") as writer:
        for name, kinds, fields in PROBLEMS:
            for kind in kinds:
                expectation = {}
                if (name, kind) == ("data.huge_scores", "bf16"):
                    expectation = dict(expect="MISTRUSTED", reason="scores of hundreds are stored with 8 bits in "
                                       "bfloat16: the derived bound is as large as the data")
                if fields.get("regime") == "constant_v":
                    expectation = dict(expect="MISTRUSTED", reason=regimes.BLIND)
                add_sdpa(writer, Problem(f"{name}.{kind}", kind, **fields), **expectation)
        # An additive mask of a narrower type promotes to the scores' type.
        add_sdpa(writer, Problem("additive.f16_on_f32", "f32", query_len=3, kv_len=9, k_dim=32, array="additive",
                                 additive_kind="f16"))
        add_limits(writer)
        add_leaks(writer)


def add_limits(writer):
    """Data at the end of a type's range."""
    problem = Problem("range.scores.f16", "f16", query_heads=1, query_len=1, kv_len=4, k_dim=64, scale=1.0)
    problem.q[:] = 40
    problem.k[:] = 40
    add_sdpa(writer, problem, expect="MISTRUSTED",
             reason="a score of 102400 overflows where scores are stored in float16; the result is NaN")
    problem = Problem("range.scores.bf16", "bf16", query_heads=1, query_len=1, kv_len=4, k_dim=64, scale=1.0)
    problem.q[:] = regimes.to_storage(40, "bf16")
    problem.k[:] = regimes.to_storage(40, "bf16")
    add_sdpa(writer, problem, expect="MISTRUSTED",
             reason="scores of 102400 are stored in steps of 512 in bfloat16: the derived bound is infinite")
    # 27 equal weights round up to a sum above 1, and 65504 times that rounds to infinity.
    problem = Problem("range.output.f16", "f16", query_heads=1, query_len=1, kv_len=27, k_dim=16, regime="equal_keys")
    problem.v[:] = 65504
    add_sdpa(writer, problem, expect="MISTRUSTED", reason="the mean of 27 values of 65504 comes out infinite, which the "
             "bound allows: it reaches beyond float16; but " + regimes.BLIND)


def add_leaks(writer):
    """A key that the mask hides holds NaN or infinity, as a cache slot that was never written may."""
    leak = dict(query_heads=2, kv_heads=1, query_len=2, kv_len=6, k_dim=16)
    for operand, value in (("v", np.nan), ("v", np.inf), ("k", np.nan)):
        for array in ("bool", "additive"):
            label = "nan" if np.isnan(value) else "inf"
            problem = Problem(f"leak.{operand}_{label}.{array}", "f32", array=array,
                              additive_hides=array == "additive", axes="T", **leak)
            hidden = 4
            problem.mask[hidden] = False if array == "bool" else -np.inf
            getattr(problem, operand)[:, :, hidden] = value
            # A replaced score hides the key's K whatever it holds; a weight of 0 does not hide its V.
            expectation = {}
            if operand == "v" or array == "additive":
                expectation = dict(expect="FAIL", reason=f"{label} in {operand.upper()} of a hidden key reaches every "
                                   "output: " + ("0 times it is NaN" if operand == "v" else "-inf plus it is NaN"))
            # Under mask_value=lowest a hidden key stays in the sums, and nothing would be promised of its V: these
            # cases hold MLX to what a mask means.
            add_sdpa(writer, problem, profile="", **expectation)


# ----------------------------------------------------------------------- quantized attention

# name, (bits, group), fields; each in f32, f16 and bf16.
QUANTIZED = [
    ("decode", (8, 64), dict(query_heads=4, kv_heads=2, query_len=1, kv_len=17)),
    ("decode", (4, 64), dict(query_heads=4, kv_heads=2, query_len=1, kv_len=17)),
    ("prefill", (2, 32), dict(query_heads=2, kv_heads=2, query_len=5, kv_len=17, k_dim=64)),
    ("prefill", (3, 32), dict(query_heads=2, kv_heads=1, query_len=5, kv_len=17, k_dim=96)),
    ("prefill", (5, 64), dict(query_heads=8, kv_heads=1, query_len=2, kv_len=17, k_dim=64)),
    ("decode", (6, 128), dict(query_heads=8, kv_heads=2, query_len=1, kv_len=33, k_dim=128)),
    ("causal", (4, 32), dict(query_heads=4, kv_heads=2, query_len=6, kv_len=11, k_dim=32, causal="bottom_right")),
    ("causal.more_queries_than_keys", (8, 32),
     dict(query_heads=4, kv_heads=2, query_len=6, kv_len=4, k_dim=32, causal="bottom_right")),
    ("left_pad", (4, 32), dict(batch=2, query_heads=4, kv_heads=2, query_len=4, kv_len=9, k_dim=32,
                               causal="bottom_right", left_pad=(0, 3))),
    ("bool.B1LT", (8, 32), dict(batch=2, query_heads=4, kv_heads=2, query_len=3, kv_len=9, k_dim=32, array="bool",
                                axes="B1LT")),
    ("additive.LT", (4, 32), dict(query_heads=4, kv_heads=2, query_len=3, kv_len=9, k_dim=32, array="additive",
                                  axes="LT")),
    ("data.outlier", (4, 32), dict(query_heads=4, kv_heads=2, query_len=1, kv_len=24, k_dim=64, regime="outlier")),
    ("data.same_sign_v", (4, 32), dict(query_heads=4, kv_heads=2, query_len=1, kv_len=24, k_dim=64,
                                       regime="same_sign_v")),
    # Only without groups of heads: with them the library's last reshape takes Dk for Dv and raises.
    ("values_differ", (8, 32), dict(query_heads=2, kv_heads=2, query_len=1, kv_len=9, k_dim=64, v_dim=32)),
]
VACUOUS = ("quantized_matmul accumulates in {}: the derived bound is a large part of the data, so nothing is proved")

# Sums so short that the bound of a 16-bit accumulator still says something of every row.
PROVES = {
    ("additive.LT.b4.g32.f16", "mlx_lm.decoded"),
    ("bool.B1LT.b8.g32.f16", "mlx_lm.decoded"),
    ("causal.b4.g32.f16", "mlx_lm.decoded"),
    ("causal.more_queries_than_keys.b8.g32.f16", "mlx_lm"),
    ("causal.more_queries_than_keys.b8.g32.f16", "mlx_lm.decoded"),
    ("left_pad.b4.g32.f16", "mlx_lm.decoded"),
}


def quantized_inputs(problem, bits, group):
    """The case's inputs, and K and V as mlx-lm takes them."""
    inputs = {"q": regimes.typed(problem.q, problem.kind)}
    operands = []
    for side in ("k", "v"):
        parts = encoded(getattr(problem, side), problem.kind, bits, group)
        inputs.update(coded_tensors(parts, problem.kind, bits, group, side + "_"))
        codes, scales, biases = parts
        operands.append((mx.array(codes), to_mlx(scales, problem.kind), to_mlx(biases, problem.kind)))
    return {**inputs, **problem.other_inputs()}, operands


def make_quantized(path):
    with kg.Writer(path, source=f"mlx-lm {MLX_LM}, mlx {MLX}", command="python golden/make/make_mlx.py") as writer:
        for name, (bits, group), fields in QUANTIZED:
            for kind in KINDS:
                kv_format = f"affine:{bits}:g{group}:{kind}"
                problem = Problem(f"{name}.b{bits}.g{group}.{kind}", kind, k_format=kv_format, v_format=kv_format,
                                  **fields)
                add_quantized(writer, problem, bits, group)


def add_quantized(writer, problem, bits, group):
    inputs, (k, v) = quantized_inputs(problem, bits, group)
    # The function multiplies its queries in place: they are made anew for each call.
    out = quantized_scaled_dot_product_attention(to_mlx(problem.q, problem.kind), k, v, scale=problem.scale,
                                                 mask=mask_argument(problem), group_size=group, bits=bits)
    case = writer.case(problem.name, problem.case_text(), inputs)
    plan = sdpa_plan(problem, "mlx_lm_quantized")
    common = record("mlx_lm.models.base.quantized_scaled_dot_product_attention",
                    version=f"mlx-lm {MLX_LM}, mlx {MLX}")

    def expectation(impl):
        if problem.kind == "f32" or (problem.name, impl) in PROVES:
            return {}
        return dict(expect="MISTRUSTED", reason=VACUOUS.format(regimes.LONG_NAMES[problem.kind]))

    outputs = {"out": regimes.typed(from_mlx(out), problem.kind)}
    profile = sdpa_profile(problem)
    case.observed("mlx_lm", outputs, plan=plan, profile=profile, **common,
                  **expectation("mlx_lm"))
    # The same answer against the values that the format decodes to, which the kernel uses as they are.
    case.observed("mlx_lm.decoded", outputs, plan=plan + " dequantize=stored",
                  profile=(profile + " decode=two_roundings").strip(), **common,
                  **expectation("mlx_lm.decoded"))


def main(arguments):
    directory = pathlib.Path(arguments[1] if len(arguments) > 1 else pathlib.Path(__file__).parent.parent / "data")
    directory.mkdir(parents=True, exist_ok=True)
    mx.set_default_device(mx.cpu)
    make_affine(directory / "mlx_affine.h5")
    make_sdpa(directory / "mlx_sdpa.h5")
    make_quantized(directory / "mlx_lm_quantized.h5")


if __name__ == "__main__":
    main(sys.argv)
