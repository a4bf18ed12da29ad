"""Makes torch_sdpa.h5 from PyTorch's scaled_dot_product_attention on a CPU: its flash kernel and its math path.

Usage: python make_torch.py [DIRECTORY]     (default: ../data beside this file)
Needs the packages of requirements-torch.txt. What the two paths compute and why each plan and profile is the one
stored is in plans_of_libraries.md.
"""
import pathlib
import sys

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import kvcheck_golden as kg
import machine
import regimes
from attention_problem import Problem

VERSION = torch.__version__.split("+")[0]
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
KINDS = tuple(TYPES)
THREADS = 2
FLASH = "torch_flash"
MATH = "torch_math"
BACKENDS = {FLASH: SDPBackend.FLASH_ATTENTION, MATH: SDPBackend.MATH}
flash_op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
math_op = torch.ops.aten._scaled_dot_product_attention_math

TWO = ("f32", "bf16")  # where the type changes nothing but roundings that other problems have

# name, types, fields of Problem; by both paths where both take it.
PROBLEMS = [
    # Queries: decode and prefill, blocks of 512 keys.
    ("decode.none", KINDS, dict(batch=2, query_heads=4, kv_heads=2, query_len=1, kv_len=17)),
    ("prefill.none", KINDS, dict(query_heads=4, kv_heads=2, query_len=5, kv_len=17, k_dim=32)),
    ("decode.t512", TWO, dict(query_heads=2, kv_heads=1, query_len=1, kv_len=512, k_dim=8)),
    ("prefill.t600", KINDS, dict(query_heads=4, kv_heads=1, query_len=3, kv_len=600, k_dim=8)),
    ("sink_token.t600", TWO, dict(query_heads=2, kv_heads=1, query_len=2, kv_len=600, k_dim=8, regime="sink_token")),
    # is_causal is aligned at the top left, whatever L and T are.
    ("causal.square", KINDS, dict(query_heads=2, kv_heads=1, query_len=16, kv_len=16, k_dim=32, causal="top_left")),
    ("causal.decode", KINDS, dict(query_heads=4, kv_heads=2, query_len=1, kv_len=9, k_dim=32, causal="top_left")),
    ("causal.chunk", KINDS, dict(query_heads=4, kv_heads=2, query_len=5, kv_len=21, k_dim=32, causal="top_left")),
    ("causal.more_queries_than_keys", KINDS, dict(query_heads=2, kv_heads=2, query_len=7, kv_len=4, k_dim=32,
                                                  causal="top_left")),
    # Everything else goes in as a boolean array.
    ("causal.bottom_right", KINDS, dict(query_heads=4, kv_heads=2, query_len=5, kv_len=21, k_dim=32,
                                        causal="bottom_right")),
    ("causal.bottom_right.hidden_rows", KINDS, dict(query_heads=2, kv_heads=1, query_len=7, kv_len=4, k_dim=32,
                                                    causal="bottom_right")),
    ("window.chunk", KINDS, dict(query_heads=2, kv_heads=1, query_len=6, kv_len=17, k_dim=32, causal="bottom_right",
                                 window=4)),
    ("left_pad.prefill", KINDS, dict(batch=2, query_heads=2, kv_heads=1, query_len=9, kv_len=9, k_dim=32,
                                     causal="bottom_right", left_pad=(0, 4))),
    # The flash kernel takes masks of rank 2 and 4; rank 1 goes to the math path alone.
    *[(f"{array}.{axes}", TWO, dict(batch=2, query_heads=4, kv_heads=2, query_len=3, kv_len=11, k_dim=16, array=array,
                                    axes=axes))
      for array in ("bool", "additive") for axes in ("T", "LT", "B1LT", "BHLT", "B11T")],
    ("bool.hidden_row", KINDS, dict(query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32, array="bool",
                                    hide_rows=(2,))),
    ("additive.hidden_row", KINDS, dict(query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32, array="additive",
                                        additive_hides=True, hide_rows=(2,))),
    *[(f"gqa.{hq}_{hkv}", TWO, dict(query_heads=hq, kv_heads=hkv, query_len=2, kv_len=9, k_dim=32))
      for hq, hkv in ((4, 4), (8, 4), (8, 2), (8, 1))],
    *[(f"head.{d}", TWO, dict(query_heads=2, kv_heads=1, query_len=2, kv_len=10, k_dim=d)) for d in (7, 80, 128)],
    # The flash kernel wants Dk = Dv.
    ("head.64_32", TWO, dict(query_heads=2, kv_heads=1, query_len=3, kv_len=10, k_dim=64, v_dim=32)),
    *[(f"data.{regime}", KINDS, dict(query_heads=2, kv_heads=1, query_len=2, kv_len=20, k_dim=40, regime=regime))
      for regime in ("outlier", "sink_token", "same_sign_v", "huge_scores", "constant_v", "equal_keys")],
    # The log of the sum of exponentials, which only the flash operator gives.
    ("lse.decode", KINDS, dict(query_heads=4, kv_heads=2, query_len=1, kv_len=33, k_dim=32, lse=True)),
    ("lse.causal", KINDS, dict(query_heads=2, kv_heads=1, query_len=6, kv_len=6, k_dim=32, causal="top_left",
                               lse=True)),
    ("lse.additive", KINDS, dict(query_heads=4, kv_heads=2, query_len=3, kv_len=11, k_dim=32, array="additive",
                                 lse=True)),
    ("lse.t600", TWO, dict(query_heads=2, kv_heads=1, query_len=1, kv_len=600, k_dim=8, lse=True)),
    ("lse.huge_scores", KINDS, dict(query_heads=2, kv_heads=1, query_len=2, kv_len=20, k_dim=40, regime="huge_scores",
                                    lse=True)),
]


def to_torch(stored, kind):
    tensor = torch.from_numpy(np.ascontiguousarray(stored).copy())
    return tensor.view(torch.bfloat16) if kind == "bf16" else tensor


def from_torch(tensor):
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).contiguous().numpy()


def mask_argument(problem):
    """(attn_mask, is_causal) as PyTorch takes them."""
    stated = problem.stated_mask()
    if problem.mask is not None:
        assert stated is None
        return (torch.from_numpy(problem.mask.copy()) if problem.array == "bool" else
                to_torch(problem.mask, problem.additive_kind)), False
    if problem.causal == "top_left" and not problem.window and not problem.left_pad:
        return None, True
    return (None if stated is None else torch.from_numpy(stated.copy())), False


def operands(problem):
    return [to_torch(a, problem.kind) for a in (problem.q, problem.k, problem.v)]


def attend(problem, impl):
    mask, is_causal = mask_argument(problem)
    with sdpa_kernel(BACKENDS[impl]):
        out = torch.nn.functional.scaled_dot_product_attention(
            *operands(problem), attn_mask=mask, is_causal=is_causal, scale=problem.scale,
            enable_gqa=problem.query_heads != problem.kv_heads)
    return {"out": regimes.typed(from_torch(out), problem.kind)}


def attend_with_lse(problem):
    mask, is_causal = mask_argument(problem)
    out, lse = flash_op(*operands(problem), 0.0, is_causal, attn_mask=mask, scale=problem.scale)
    return {"out": regimes.typed(from_torch(out), problem.kind), "lse": from_torch(lse)}


def record(impl, kind, **fields):
    names = {FLASH: "torch.nn.functional.scaled_dot_product_attention, SDPBackend.FLASH_ATTENTION",
             MATH: "torch.nn.functional.scaled_dot_product_attention, SDPBackend.MATH"}
    plans = {FLASH: f"base=torch_cpu_flash_{kind}", MATH: "base=torch_cpu_math"}
    fields.setdefault("implementation", names[impl])
    return dict(version=f"torch {VERSION}", machine=machine.describe(THREADS), plan=plans[impl], **fields)


def paths_of(problem):
    if problem.axes == "T" and problem.array or problem.k_dim != problem.v_dim:
        return (MATH,)
    return (FLASH, MATH)


def add(writer, problem, paths=None, **expectation):
    if problem.regime == "constant_v":
        expectation = dict(expect="MISTRUSTED", reason=regimes.BLIND)
    case = writer.case(problem.name, problem.case_text(), problem.inputs())
    if problem.lse:
        case.observed(FLASH, attend_with_lse(problem),
                      **record(FLASH, problem.kind,
                               implementation="torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
                               **expectation))
        return
    for impl in paths or paths_of(problem):
        case.observed(impl, attend(problem, impl), **record(impl, problem.kind, **expectation))


def add_findings(writer):
    small = dict(query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32)
    # The operator below the public function takes the mask as numbers.
    problem = Problem("bool.private_operator.f32", "f32", array="bool", **small)
    case = writer.case(problem.name, problem.case_text(), problem.inputs())
    mask, _ = mask_argument(problem)
    out, _ = math_op(*operands(problem), attn_mask=mask, scale=problem.scale, enable_gqa=True)
    case.observed("torch_math_operator", {"out": from_torch(out)},
                  **record(MATH, "f32", implementation="torch.ops.aten._scaled_dot_product_attention_math",
                           expect="FAIL", reason="called directly, the operator adds a boolean mask to the scores as 0 "
                           "and 1 and hides nothing"))
    case.observed(MATH, attend(problem, MATH), **record(MATH, "f32"))
    # A hidden key holds NaN or infinity, as a cache slot that was never written may.
    for operand, value in (("v", np.nan), ("v", np.inf), ("k", np.nan)):
        label = "nan" if np.isnan(value) else "inf"
        for name, fields in (("bool", dict(array="bool", axes="LT")), ("causal", dict(causal="top_left"))):
            problem = Problem(f"leak.{operand}_{label}.{name}", "f32", query_heads=2, kv_heads=1, query_len=3, kv_len=6,
                              k_dim=16, **fields)
            hidden = 4
            if problem.mask is not None:
                problem.mask[:, hidden] = False
            getattr(problem, operand)[:, :, hidden] = value
            case = writer.case(problem.name, problem.case_text(), problem.inputs())
            for impl in (FLASH, MATH):
                outputs = attend(problem, impl)
                finite = np.isfinite(outputs["out"].array).all()
                expectation = {} if finite else dict(
                    expect="FAIL", reason=f"{label} in {operand.upper()} of a hidden key reaches the outputs: "
                    + ("0 times it is NaN" if operand == "v" else "-inf plus it is NaN"))
                case.observed(impl, outputs, **record(impl, "f32", **expectation))


def add_conventions(writer):
    """Masks of another type than the queries', and masks that hide with a large finite number."""
    for kind in ("f16", "bf16"):
        add(writer, Problem(f"additive.f32_on_{kind}", kind, query_heads=4, kv_heads=2, query_len=3, kv_len=11,
                            k_dim=32, array="additive", additive_kind="f32"))
    problem = Problem("additive.lowest.f32", "f32", query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32,
                      array="additive", additive_hides=True)
    problem.mask[np.isinf(problem.mask)] = np.finfo(np.float32).min
    add(writer, problem)
    problem = Problem("additive.minus_1e9.f32", "f32", query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32,
                      array="additive", additive_hides=True)
    problem.mask[np.isinf(problem.mask)] = -1e9
    add(writer, problem)
    # A query that sees no key: its output is 0. Its log-sum-exp, which nothing promises, is 0 where the log of an empty
    # sum is -inf; merged with another part it would weigh like a key of score 0.
    for kind in KINDS:
        add(writer, Problem(f"lse.hidden_row.{kind}", kind, query_heads=2, kv_heads=1, query_len=4, kv_len=9, k_dim=32,
                            array="additive", additive_hides=True, hide_rows=(2,), lse=True))
    # Products beyond float16, which these paths keep in float.
    problem = Problem("range.scores.f16", "f16", query_heads=1, query_len=1, kv_len=4, k_dim=64, scale=1.0)
    problem.q[:] = 40
    problem.k[:] = 40
    add(writer, problem, expect="MISTRUSTED",
        reason="scores of 102400 are uncertain by 0.4 in float: the derived bound is a large part of the data")


def main(arguments):
    directory = pathlib.Path(arguments[1] if len(arguments) > 1 else pathlib.Path(__file__).parent.parent / "data")
    directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(THREADS)
    with kg.Writer(directory / "torch_sdpa.h5", source=f"torch {VERSION}",
                   command="python golden/make/make_torch.py") as writer:
        for name, kinds, fields in PROBLEMS:
            for kind in kinds:
                add(writer, Problem(f"{name}.{kind}", kind, **fields))
        add_conventions(writer)
        add_findings(writer)


if __name__ == "__main__":
    main(sys.argv)
