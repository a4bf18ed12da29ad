"""Makes mlx_lm_faults.h5: answers of old releases of mlx-lm that were wrong, beside those of the pinned release.

Usage: python make_mlx_lm_faults.py WHEELS [DIRECTORY]     (DIRECTORY default: ../data beside this file)
WHEELS is a folder with the wheels of OLD, got by: pip download --no-deps -d WHEELS mlx-lm==VERSION
Needs the packages of requirements-mlx.txt. Of an old release only models/base.py and what it imports is run, on the
pinned MLX: the faults are in how that file builds and applies masks.

  0.31.3  quantized attention keeps a (B,1,L,T) mask at rank 4 against scores of rank 5 (B,Hkv,Hq/Hkv,L,T): where B
          equals Hkv it broadcasts, and a row of the batch gets the mask of another
  0.23.0  quantized attention adds a boolean mask to the scores as 0 and 1
  0.24.0  a window of W lets W + 1 keys through
"""
import pathlib
import sys

import mlx.core as mx
import numpy as np

import kvcheck_golden as kg
import make_mlx
import regimes
from attention_problem import Problem
from releases import release

OLD = ("0.23.0", "0.24.0", "0.31.3")


def quantized_out(base, problem, bits, group):
    _, (k, v) = make_mlx.quantized_inputs(problem, bits, group)
    return make_mlx.from_mlx(base.quantized_scaled_dot_product_attention(
        make_mlx.to_mlx(problem.q, problem.kind), k, v, scale=problem.scale, mask=make_mlx.mask_argument(problem),
        group_size=group, bits=bits))


def windowed_out(base, problem):
    mask = base.create_causal_mask(problem.query_len, problem.kv_len - problem.query_len, window_size=problem.window)
    q, k, v = (make_mlx.to_mlx(a, problem.kind) for a in (problem.q, problem.k, problem.v))
    return make_mlx.from_mlx(mx.fast.scaled_dot_product_attention(q, k, v, scale=problem.scale, mask=mask))


def add(writer, wheels, problem, inputs, old, out_of, fault, **fields):
    case = writer.case(problem.name, problem.case_text(), inputs)
    import mlx_lm.models.base as current

    def observe(impl, version, base, **expectation):
        case.observed(impl, {"out": regimes.typed(out_of(base, problem), problem.kind)},
                      **make_mlx.record(version=f"mlx-lm {version}, mlx {make_mlx.MLX}", **fields, **expectation))

    with release(wheels, old) as base:
        observe("mlx_lm." + old, old, base, expect="FAIL", reason=fault)
    observe("mlx_lm." + make_mlx.MLX_LM, make_mlx.MLX_LM, current)


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    wheels = pathlib.Path(arguments[1])
    directory = pathlib.Path(arguments[2] if len(arguments) > 2 else pathlib.Path(__file__).parent.parent / "data")
    mx.set_default_device(mx.cpu)
    bits, group, kind = 8, 32, "f32"
    kv_format = f"affine:{bits}:g{group}:{kind}"
    formats = dict(k_format=kv_format, v_format=kv_format)
    quantized = dict(implementation="mlx_lm.models.base.quantized_scaled_dot_product_attention",
                     profile="masked_row=mean mask_value=lowest decode=two_roundings")
    source = "mlx-lm " + ", ".join(OLD + (make_mlx.MLX_LM,)) + f", mlx {make_mlx.MLX}"
    with kg.Writer(directory / "mlx_lm_faults.h5", source=source,
                   command="python golden/make/make_mlx_lm_faults.py WHEELS") as writer:
        problems = [
            Problem("batch_mask_with_groups.array", kind, batch=2, query_heads=4, kv_heads=2, query_len=3, kv_len=9,
                    k_dim=32, array="bool", axes="B1LT", **formats),
            Problem("batch_mask_with_groups.left_pad", kind, batch=2, query_heads=4, kv_heads=2, query_len=1, kv_len=9,
                    k_dim=32, left_pad=(0, 5), **formats),
            Problem("batch_mask_with_groups.prefill", kind, batch=2, query_heads=4, kv_heads=2, query_len=6, kv_len=6,
                    k_dim=32, causal="bottom_right", left_pad=(0, 3), **formats),
        ]
        for problem in problems:
            inputs, _ = make_mlx.quantized_inputs(problem, bits, group)
            add(writer, wheels, problem, inputs, "0.31.3", lambda base, p: quantized_out(base, p, bits, group),
                "a (B,1,L,T) mask meets scores (B,Hkv,Hq/Hkv,L,T) without a new axis: with B = Hkv it broadcasts, and "
                "heads take the place of rows of the batch",
                plan=make_mlx.sdpa_plan(problem, "mlx_lm_quantized") + " dequantize=stored", **quantized)
        for name, fields in (("boolean_mask_added.array", dict(query_len=3, array="bool", axes="LT")),
                             ("boolean_mask_added.window", dict(query_len=5, causal="bottom_right", window=3))):
            problem = Problem(name, kind, query_heads=4, kv_heads=2, kv_len=9, k_dim=32, **formats, **fields)
            inputs, _ = make_mlx.quantized_inputs(problem, bits, group)
            add(writer, wheels, problem, inputs, "0.23.0", lambda base, p: quantized_out(base, p, bits, group),
                "a boolean mask is added to the scores as 0 and 1 and hides nothing",
                plan=make_mlx.sdpa_plan(problem, "mlx_lm_quantized") + " dequantize=stored", **quantized)
        for name, fields in (("window_off_by_one.prefill", dict(query_len=8, kv_len=8, window=3)),
                             ("window_off_by_one.chunk", dict(query_len=4, kv_len=12, window=5))):
            problem = Problem(name, kind, query_heads=2, kv_heads=1, k_dim=32, causal="bottom_right", **fields)
            add(writer, wheels, problem, problem.inputs(), "0.24.0", windowed_out,
                "a window of W shows each query W + 1 keys: the comparison includes its far end",
                implementation="mlx_lm.models.base.create_causal_mask, mx.fast.scaled_dot_product_attention",
                plan=make_mlx.sdpa_plan(problem, "mlx_cpu_sdpa"), profile=make_mlx.sdpa_profile(problem))


if __name__ == "__main__":
    main(sys.argv)
