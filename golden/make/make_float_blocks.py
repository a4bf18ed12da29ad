"""Makes mlx_blocks.h5 (mlx_0_31_blocks.h5 under MLX 0.31.2): what MLX writes and reads in its modes mxfp4, mxfp8 and nvfp4
on a CPU. And, without MLX, transcribed_blocks.h5: what other writers make, by the transcription of float_blocks.py, elements
of OCP rounded by ml_dtypes.

Usage: python make_float_blocks.py mlx [DIRECTORY]             (default: ../data beside this file)
       python make_float_blocks.py transcribed [DIRECTORY]
       ... --values COUNT                                      COUNT values of each format and type, rounded up to rows, in
                                                               place of the stored ones, for `kvcheck golden verify`
Needs the packages of requirements-float-blocks.txt; for MLX 0.31.2 the same with that version.
"""
import argparse
import importlib.metadata
import pathlib

import numpy as np

import float_blocks
import kvcheck_golden as kg
import machine
import regimes

KINDS = ("f32", "f16", "bf16")
COMMAND = "python golden/make/make_float_blocks.py "
# Without f16_range, whose values leave f16, and offset: 1000 beside which nothing is kept.
FAMILIES = ("gauss", "outlier", "constant", "all_negative", "zeros", "tiny", "ties", "powers", "subnormal")


def text_of(direction, name, kind, x):
    return f"codec op={direction} format={name} x={kind} rows={x.shape[0]} d={x.shape[1]} data=file"


def rows_of(kind, rng):
    """Rows of 128 channels. ties: sixteenths, which are midpoints of elements. powers: of largest magnitudes m 2^k with m
    beside 1 and beside 6, where the scale changes. subnormal: not so small that MLX's scale wraps (formats.md, B)."""
    rows = []
    for family in FAMILIES:
        if family == "ties":
            row = rng.integers(-96, 97, 128) / 16
            row[::16] = 6 * np.sign(row[::16] + 0.01)
        elif family == "powers":
            row = rng.uniform(-1, 1, 128) * 2.0**-6
            row[::16] = [1, 1 + 2**-7, 1 - 2**-8, 6, 6 + 2**-5, 6 - 2**-6, 448, 449]
            row *= 2.0 ** np.repeat(rng.integers(-4, 4, 8), 16)
        elif family == "subnormal":
            row = rng.integers(-60, 61, 128) * (2.0**-24 if kind == "f16" else 2.0**-122)
        else:
            row = regimes.codec_rows("f32", 4, 128, rng, (family,))[0]
        rows.append(row)
    return regimes.to_storage(np.array(rows), kind)


def many(kind, count, name):
    """COUNT values: magnitudes 2^-8 to 2^8 from block to block, ties, sparse and heavy-tailed rows."""
    rng = regimes.generator(f"many.{name}")
    blocks = (count + 127) // 128 * 8
    x = rng.standard_normal((blocks, 16)) * 2.0 ** rng.integers(-8, 9, (blocks, 1))
    x[::4] = np.round(x[::4] * 16) / 16
    x[1::8] *= rng.standard_normal((len(x[1::8]), 16)) ** 4
    x[2::16] *= rng.random((len(x[2::16]), 16)) < 0.1
    x[3::16] = 2.0 ** rng.uniform(-8, 8, (len(x[3::16]), 16))
    return regimes.to_storage(np.clip(x, -6e4, 6e4).reshape(-1, 128), kind)


def typed(codes, scales, text):
    return {"codes": kg.Typed(codes, "uint8", kv_format=text), "scales": kg.Typed(scales, "uint8")}


def add(writer, label, impl, text, kind, x, planes, y, profile, fields, round_trip):
    given, stored = {"x": regimes.typed(x, kind)}, typed(*planes, text)
    record = dict(machine=machine.describe(), profile=profile, **fields)
    case = writer.case(f"encode.{label}", text_of("encode", text, kind, x), given)
    case.observed(impl, stored, **record)
    if y is None:
        return
    record["profile"] = (profile + " decode=two_roundings").strip()
    case = writer.case(f"decode.{label}", text_of("decode", text, kind, x), stored)
    case.observed(impl, {"y": regimes.typed(y, kind)}, **record)
    if not round_trip or float_blocks.parse(text).element == "e5m2":  # whose bound is about a tenth of the data
        return
    if float_blocks.parse(text).bits == 4:
        record |= dict(expect="MISTRUSTED", reason="elements of 4 bits lie a large part of these data apart: a round trip "
                       "within that proves little; the cases encode and decode judge every byte")
    case = writer.case(f"round_trip.{label}", text_of("round_trip", text, kind, x), given)
    case.observed(impl, {"y": regimes.typed(y, kind)}, **record)


def make_mlx(directory, values):
    import mlx.core as mx

    types = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
    version = importlib.metadata.version("mlx")
    old = version.startswith("0.31.")
    path = directory / ("mlx_0_31_blocks.h5" if old else "mlx_blocks.h5")
    modes = {"mxfp4": ("mxfp4", 32, 4), "mxfp8:e4m3": ("mxfp8", 32, 8), "nvfp4": ("nvfp4", 16, 4)}
    with kg.Writer(str(path), source=f"mlx {version}", command=COMMAND + "mlx") as writer:
        for name, (mode, group, bits) in modes.items():
            for kind in KINDS:
                text, label = f"{name}:{kind}", f"{mode}.{kind}"
                x = many(kind, values, label) if values else rows_of(kind, regimes.generator("blocks." + label))
                array = mx.array(x).view(mx.bfloat16) if kind == "bf16" else mx.array(x)
                codes, scales = mx.quantize(array, group_size=group, bits=bits, mode=mode)[:2]
                y = mx.dequantize(codes, scales, group_size=group, bits=bits, mode=mode, dtype=types[kind])
                assert y.dtype == types[kind]
                y = np.array(y.view(mx.uint16) if kind == "bf16" else y)
                planes = np.array(codes).view(np.uint8), np.array(scales)
                profile = "" if mode == "nvfp4" else f"mx_encode={'mlx_0_31' if old else 'mlx'}"
                add(writer, label, "mlx", text, kind, x, planes, y, profile,
                    dict(implementation=f"mx.quantize, mx.dequantize(mode={mode})", version=f"mlx {version}"),
                    round_trip=not values)
    print(path)


# Format, writer, and types of the stored rows (of --values: all).
TRANSCRIBED = (("mxfp4", "ocp", ("f32", "f16")), ("mxfp4", "up", ("bf16",)), ("mxfp8:e4m3", "up", ("bf16",)),
               ("mxfp8:e4m3", "ocp", ("bf16",)), ("mxfp8:e5m2", "ocp", ("f16",)),
               ("mxfp4:g16", "sglang", ("f32", "bf16")), ("nvfp4:x0.002", "vllm", ("bf16",)),
               ("nvfp4:x0.0003", "vllm", ("f16",)), ("nvfp4:x0.002", "vllm_4over6", ("bf16",)))
FIELDS = {"ocp": ("mx_encode", "OCP MX 1.0, elements by ml_dtypes"),
          "up": ("mx_encode", "cvt.rp.satfinite.ue8m0x2, elements to nearest even"),
          "sglang": ("mx_encode", "SGLang kvfp4_tensor.py at 0dae407b"),
          "vllm": ("nvfp4_encode", "vLLM nvfp4_kv_cache_kernels.cu at 0cd789b3"),
          "vllm_4over6": ("nvfp4_encode", "vLLM nvfp4_kv_cache_kernels.cu at 0cd789b3")}


def ocp_by_ml_dtypes(x, text):
    """The planes of float32 rows: scales by frexp, elements by the casts of ml_dtypes."""
    import ml_dtypes

    record = float_blocks.parse(text)
    element = {"e2m1": ml_dtypes.float4_e2m1fn, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    blocks = x.reshape(*x.shape[:-1], -1, record.block).astype(np.float64)
    a = np.abs(blocks).max(-1)
    largest = float(ml_dtypes.finfo(element[record.element]).max)
    exponent = np.maximum(np.where(a == 0, -127, np.frexp(a)[1] - np.frexp(largest)[1]), -127)
    w = np.clip(np.ldexp(blocks, -exponent[..., None]), -largest, largest).astype(np.float32)
    codes = w.astype(element[record.element]).view(np.uint8).reshape(x.shape)
    if record.bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return codes, (exponent + 127).astype(np.uint8)


def make_transcribed(directory, values):
    path = directory / "transcribed_blocks.h5"
    version = f"numpy {np.__version__}, ml_dtypes {importlib.metadata.version('ml_dtypes')}"
    with kg.Writer(str(path), source=version, command=COMMAND + "transcribed") as writer:
        for name, encode, kinds in TRANSCRIBED:
            for kind in KINDS if values else kinds:
                text, label = f"{name}:{kind}", f"{encode}.{name.replace(':', '_')}.{kind}"
                x = many(kind, values, label) if values else rows_of(kind, regimes.generator("blocks." + label))
                wide = regimes.widen(x, kind).astype(np.float32)
                planes = ocp_by_ml_dtypes(wide, text) if encode == "ocp" else float_blocks.encode(wide, text, encode)
                y = regimes.to_storage(float_blocks.decode(*planes, text), kind)
                field, implementation = FIELDS[encode]
                default = encode == "ocp"
                add(writer, label, "transcribed", text, kind, x, planes, y, "" if default else f"{field}={encode}",
                    dict(implementation=implementation, version=version), round_trip=not values)
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("mlx", "transcribed"))
    parser.add_argument("directory", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "data")
    parser.add_argument("--values", type=int)
    options = parser.parse_intermixed_args()
    (make_mlx if options.source == "mlx" else make_transcribed)(options.directory, options.values)


if __name__ == "__main__":
    main()
