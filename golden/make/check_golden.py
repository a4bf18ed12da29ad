"""Judges the golden files of attention, codecs and traces in numpy, apart from the C++ of the project.

Attention is evaluated in float64 from the stored inputs, with the bound of the plan that check_plans.py holds for the
library; codes are held bit for bit to a second writing of their formats. Prints, per file, library and type, the
largest err/B and the median B/A of the records that are expected to pass, A = sum_j p_j |v_jc|. Records that are
expected to fail must have an element beyond the bound; MISTRUSTED ones are counted, and not judged. The log-sum-exp is
left to `kvcheck golden verify`. Traces are judged by check_traces.py.

Usage: python check_golden.py [FILE...]      (default: all of ../data; needs numpy and h5py)
Exit status: 0 when every record is what it is expected to be, 1 otherwise.
"""
import collections
import math
import pathlib
import sys

import numpy as np

import affine_groups
import channel_groups
import check_plans
import check_traces
import float_blocks
import ggml_blocks
import kvcheck_golden as kg
import regimes
import token_head
import turboquant_groups
import uniform
from regimes import rounded

PLANS = {"mlx_cpu_sdpa": check_plans.mlx_plan, "mlx_lm_quantized": check_plans.mlx_lm_plan,
         "torch_cpu_flash": check_plans.torch_flash_plan, "torch_cpu_math": check_plans.torch_math_plan}
KINDS = {long: short for short, long in regimes.LONG_NAMES.items()}


def fields_of(text):
    kind, *fields = text.split(" ")
    return kind, dict(field.split("=", 1) for field in fields)


def exact(tensor):
    return regimes.widen(tensor.array, KINDS[tensor.dtype])


def decode_affine(tensors, prefix, text, head_dim):
    codes, scales, biases = (tensors[prefix + part] for part in ("codes", "scales", "biases"))
    unpacked = affine_groups.unpack(codes.array, affine_groups.parameters_of(text)[0], head_dim)
    return affine_groups.values_of(unpacked, exact(scales), exact(biases), text)


def blocks_are_right(fields, case, record):
    text = fields["format"]
    if fields["op"] == "decode":
        want = ggml_blocks.decode(case.inputs["blocks"].array, text)
        return np.array_equal(want, exact(record.outputs["y"]), equal_nan=True)
    x = exact(case.inputs["x"])
    stored = ggml_blocks.encode(x, text, x86="ggml_encode=x86" in record.profile)
    if fields["op"] == "encode":
        return bool((~ggml_blocks.judged(x, text) | (stored == record.outputs["blocks"].array)).all())
    return np.array_equal(ggml_blocks.decode(stored, text), exact(record.outputs["y"]))


def float_blocks_are_right(fields, case, record):
    text = fields["format"]
    if fields["op"] == "decode":
        want = float_blocks.decode(case.inputs["codes"].array, case.inputs["scales"].array, text)
        return np.array_equal(want, exact(record.outputs["y"]), equal_nan=True)
    _, profile = fields_of(("profile " + record.profile).strip())
    default = "mlx" if text.startswith("nvfp4") else "ocp"
    writer = profile.get("mx_encode", profile.get("nvfp4_encode", default))
    codes, scales = float_blocks.encode(exact(case.inputs["x"]), text, writer)
    if fields["op"] == "encode":
        return (np.array_equal(codes, record.outputs["codes"].array)
                and np.array_equal(scales, record.outputs["scales"].array))
    return np.array_equal(float_blocks.decode(codes, scales, text), exact(record.outputs["y"]))


def groups_are_right(fields, case, record):
    """Of turboquant: of a round trip the rows that the codes of this file stand for, so that a code at a threshold is an error."""
    text, kind = fields["format"], fields["format"].rsplit(":", 1)[1]
    if turboquant_groups.is_prod(text):
        return prod_is_right(fields, case, record)
    if fields["op"] == "decode":
        want = turboquant_groups.decode(case.inputs["codes"].array, case.inputs["norms"].array, text)
        return np.array_equal(rounded(want, kind), exact(record.outputs["y"]), equal_nan=True)
    x = rounded(exact(case.inputs["x"]), kind)
    if fields["op"] == "encode":
        return turboquant_groups.is_right(x, record.outputs["codes"].array, record.outputs["norms"].array, text)
    words, norms, _ = turboquant_groups.encode(x, text)
    return np.array_equal(rounded(turboquant_groups.decode(words, norms, text), kind), exact(record.outputs["y"]))


def prod_is_right(fields, case, record):
    """Of turboquant's inner-product codec: values within what a decoder in float32 and the rounding to the row type may lose."""
    text, kind = fields["format"], fields["format"].rsplit(":", 1)[1]
    planes = record.outputs if fields["op"] == "encode" else case.inputs
    stored = [planes[name].array for name in ("codes", "norms", "residual_norms")]
    if fields["op"] == "encode":
        return turboquant_groups.prod_is_right(rounded(exact(case.inputs["x"]), kind), *stored, text)
    want, off = turboquant_groups.decode_prod(*stored, text)
    ends = (rounded(want + side * off, kind) for side in (-1, 1))
    got = exact(record.outputs["y"])
    return bool((next(ends) <= got).all() and (got <= next(ends)).all())


def scaled_is_right(fields, case, record):
    """8-bit codes with a scale, and nibbles with a zero point; NaN codes may have any sign, and of e5m2 be any NaN."""
    text = fields["format"]
    code, place, kind = token_head.parts_of(text)
    if fields["op"] == "decode":
        planes = {name: tensor.array for name, tensor in case.inputs.items()}
        return np.array_equal(rounded(token_head.decode(planes, text), kind), exact(record.outputs["y"]), equal_nan=True)
    profile = dict(field.split("=") for field in record.profile.split())
    overflow, writer = profile.get("fp8_overflow", "nan"), profile.get("token_encode", "divide")
    x = exact(case.inputs["x"]).astype(np.float32)
    for name, want in token_head.encode(x, text, writer, overflow).items():
        got = record.outputs[name].array
        if name == "codes" and writer != "divide" and code != "int4zp":
            # A GPU's reciprocal of the scale is off by one unit at most.
            inverse = np.float32(1) / record.outputs["scales"].array
            for beside in (np.float32(0), np.float32(np.inf)):
                other = token_head.codes_by(x, code, np.nextafter(inverse, beside), writer)
                want = np.where(other == got, got, want)
        nan = np.isnan(x) if place.startswith("s") else np.zeros(got.shape, bool)
        if not np.array_equal(np.where(nan, 0, want), np.where(nan, 0, got)):
            return False
        if nan.any() and not np.isnan(token_head.values_of(code)[got[nan]]).all():
            return False
    return True


def uniform_is_right(fields, case, record):
    text = fields["format"]
    kind = uniform.parts_of(text)[-1]
    if fields["op"] == "decode":
        planes = {name: tensor.array for name, tensor in case.inputs.items()}
        return np.array_equal(rounded(uniform.decode(planes, text), kind), exact(record.outputs["y"]), equal_nan=True)
    x = rounded(exact(case.inputs["x"]), kind).astype(np.float32)
    # A GPU's reciprocal of the scale is off by one unit at most; of zeros of both signs either is the minimum.
    made = [uniform.encode(x, text, unit) for unit in (-1, 0, 1)]
    return all(np.any([planes[name] == tensor.array for planes in made], axis=0).all() for name, tensor in record.outputs.items())


def channels_are_right(fields, case, record):
    profile = dict(field.split("=") for field in record.profile.split())
    writer = profile.get("channel", "kivi")
    if fields["op"] == "decode":
        want = channel_groups.rows_of(case.inputs, fields["format"], writer)
        return np.array_equal(want, exact(record.outputs["y"]))
    return channel_groups.is_right(exact(case.inputs["x"]).astype(np.float32), record.outputs, fields["format"], writer)


def codec_is_right(fields, case, record):
    """Whether the outputs are those of the format; None where this file does not say."""
    if channel_groups.parts_of(fields["format"]):
        return channels_are_right(fields, case, record)
    if float_blocks.parse(fields["format"]):
        return float_blocks_are_right(fields, case, record)
    if turboquant_groups.matches(fields["format"]):
        return groups_are_right(fields, case, record)
    if fields["format"] in ggml_blocks.TYPES:
        return blocks_are_right(fields, case, record)
    if uniform.parts_of(fields["format"]) is not None:
        return uniform_is_right(fields, case, record)
    if token_head.parts_of(fields["format"]) is not None:
        return scaled_is_right(fields, case, record)
    head_dim = int(fields["d"])
    if fields["op"] == "decode":
        want = decode_affine(case.inputs, "", fields["format"], head_dim)
        return np.array_equal(want, exact(record.outputs["y"]), equal_nan=True)
    x = exact(case.inputs["x"])
    if not np.isfinite(x).all() or np.ptp(x) > 1e38:
        return None
    profile = dict(field.split("=") for field in record.profile.split())
    codes, scales, biases = affine_groups.encode(x, fields["format"], profile.get("encode", "mlx_cpu"))
    if fields["op"] == "encode":
        bits = affine_groups.parameters_of(fields["format"])[0]
        return (np.array_equal(codes, affine_groups.unpack(record.outputs["codes"].array, bits, head_dim))
                and np.array_equal(scales, exact(record.outputs["scales"]))
                and np.array_equal(biases, exact(record.outputs["biases"])))
    return np.array_equal(affine_groups.values_of(codes, scales, biases, fields["format"]), exact(record.outputs["y"]))


# ------------------------------------------------------------------------------------ attention


def operand(case, name, fields):
    if name in case.inputs:
        return exact(case.inputs[name])
    head_dim = int(fields["dv"] if name == "v" and "dv" in fields else fields["d"])
    return decode_affine(case.inputs, f"{name}_", fields[name], head_dim)


def visible_and_bias(fields, mask, shape):
    """(B,Hq,L,T) each, and the queries (B,L) that are padding themselves."""
    batch, _, rows, keys = shape
    visible, bias = np.ones(shape, bool), np.zeros(shape)
    terms = [] if fields["mask"] == "none" else fields["mask"].split("+")
    offset = 0 if "causal_top_left" in terms else keys - rows
    key, position = np.arange(keys)[None], np.arange(rows)[:, None] + offset
    padding = np.zeros(batch, int)
    for term in terms:
        name, _, value = term.partition(":")
        if name.startswith("causal"):
            visible &= key <= position
        elif name == "window":
            visible &= key > position - int(value)
        elif name == "left_pad":
            padding = np.array([int(p) for p in value.split(",")])
            visible &= (key[None, None] >= padding[:, None, None, None])
        elif name == "bool":
            visible &= mask.array.astype(bool)
        elif name == "additive":
            values = np.broadcast_to(exact(mask), shape)
            visible &= values > -np.inf
            bias = np.where(visible, values, 0)
    is_padding = (position[:, 0][None] < padding[:, None]) & (position[:, 0][None] >= 0)
    return visible, bias, is_padding


def attention_ratios(fields, case, record):
    """err/B and B/A of every element that has a bound, as two lists of arrays."""
    base = record.plan.split(" ")[0].removeprefix("base=")
    kind = fields["q"]
    make_plan = PLANS[base.removesuffix("_" + kind)]
    check_plans.VECTOR = 16 if "AVX-512" in record.machine else 8
    q, k, v = exact(case.inputs["q"]), operand(case, "k", fields), operand(case, "v", fields)
    out = exact(record.outputs["out"])
    sinks = exact(case.inputs["sinks"]) if "sinks" in case.inputs else None
    heads, groups = q.shape[1], q.shape[1] // k.shape[1]
    shape = (*q.shape[:3], k.shape[2])
    visible, bias, is_padding = visible_and_bias(fields, case.inputs.get("mask"), shape)
    _, profile = fields_of("profile " + record.profile if record.profile else "profile")
    alpha = float(fields["scale"])
    ratios, shares = [], []
    for b in range(shape[0]):
        for h in range(heads):
            sees = visible[b, h].any(1)
            sink = None if sinks is None else float(sinks[h])
            plan = make_plan(kind, k.shape[3], shape[3], alpha, sink is not None)
            keys, values = k[b, h // groups], v[b, h // groups]
            queries, seen = q[b, h].copy(), visible[b, h].copy()
            blind = ~sees & ~is_padding[b]
            if blind.any():
                got = out[b, h][blind]
                rule = profile.get("masked_row", "zero") if sink is None else "zero"
                if rule == "nan":
                    ratios.append(np.where(np.isnan(got), 0.0, math.inf))
                elif rule == "zero":
                    ratios.append(np.where(got == 0, 0.0, math.inf))
                else:  # the mean: every score the same
                    queries[blind], seen[blind] = 0, True
                    sees = sees | blind
            rows = sees & ~is_padding[b]
            if not rows.any():
                continue
            args = (queries[rows], keys, values, alpha, bias[b, h][rows], seen[rows], sink)
            o, bound, mass, overflow = check_plans.attention_and_bound(*args, plan)
            bound = bound + check_plans.attention_and_bound(
                *args, check_plans.reference_plan(k.shape[3], shape[3] + 1))[1]
            good = ~overflow & np.isfinite(bound).all(1)
            with np.errstate(invalid="ignore"):
                ratio = np.abs(out[b, h][rows][good] - o[good]) / bound[good]
            # Where the bound reaches beyond the type, infinity is a right answer.
            beyond = np.abs(o[good]) + bound[good] > check_plans.STORAGE[kind].largest
            ratio = np.where(np.isinf(out[b, h][rows][good]) & beyond, 0.0, ratio)
            ratios.append(np.where(np.isnan(ratio), math.inf, ratio).ravel())
            shares.append((bound[good] / np.maximum(mass[good], np.finfo(np.float64).tiny)).ravel())
    return [np.concatenate([r.ravel() for r in ratios])] if ratios else [], shares


class Row:
    def __init__(self):
        self.records = collections.Counter()
        self.elements, self.worst, self.shares, self.wrong = 0, 0.0, [], []


def main(arguments):
    paths = arguments[1:] or sorted((pathlib.Path(__file__).parent.parent / "data").glob("*.h5"))
    ok = True
    print(f"{'file':<22}{'record':<22}{'type':<6}{'PASS':>5}{'FAIL':>5}{'MISTR':>6}{'elements':>10}{'max err/B':>11}"
          f"{'median B/A':>12}")
    for path in paths:
        table = collections.defaultdict(Row)
        for name, case in kg.read(path).cases.items():
            kind, fields = fields_of(case.case_text.split("; ")[0])
            for impl, record in case.observed.items():
                if kind == "cache":
                    row = table[impl + " trace", fields.get("x", "f32")]
                    row.records[record.expect] += 1
                    right, found = check_traces.is_as_expected(case, record)
                    if right is False:
                        row.wrong.append(f"{name} (expected {record.expect}): {found}")
                    continue
                label = impl if kind == "attention" else f"{impl} {fields['op']}"
                row = table[label, fields["q" if kind == "attention" else "x"]]
                row.records[record.expect] += 1
                if record.expect == "MISTRUSTED":
                    continue
                if kind == "codec":
                    if codec_is_right(fields, case, record) is False:
                        row.wrong.append(name)
                    continue
                ratios, shares = attention_ratios(fields, case, record)
                worst = max((float(r.max()) for r in ratios if r.size), default=0.0)
                if (worst > 1) != (record.expect == "FAIL"):
                    row.wrong.append(f"{name} (err/B {worst:.3g}, expected {record.expect})")
                if record.expect == "PASS":
                    row.worst = max(row.worst, worst)
                    row.elements += sum(r.size for r in ratios)
                    row.shares += shares
        for (label, kind), row in sorted(table.items()):
            median = f"{np.median(np.concatenate(row.shares)):.2g}" if row.shares else "-"
            worst = f"{row.worst:.3f}" if row.elements else "-"
            print(f"{pathlib.Path(path).stem:<22}{label:<22}{kind:<6}{row.records['PASS']:>5}{row.records['FAIL']:>5}"
                  f"{row.records['MISTRUSTED']:>6}{row.elements:>10}{worst:>11}{median:>12}")
            for name in row.wrong:
                print(f"  not as expected: {name}")
                ok = False
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
