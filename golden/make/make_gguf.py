"""Makes gguf_blocks.h5 and gguf_minimum_blocks.h5: what llama.cpp's own Python package (gguf) writes and reads of blocks of
ggml, the second of the types whose blocks have a minimum, and what it reads of iq4_nl, which it does not write.

Usage: python make_gguf.py [DIRECTORY]                    (default: ../data beside this file)
       python make_gguf.py --values COUNT [DIRECTORY]     COUNT values of each type in place of the stored rows, all in one
                                                          file, for `kvcheck golden verify DIRECTORY/gguf_blocks.h5`
Needs the packages of requirements-gguf.txt. gguf follows the C reference of ggml (ggml_encode=reference), but for the
sign of the scale of a block of zeros, and of a minimum that is 0.
"""
import argparse
import importlib.metadata
import pathlib

import gguf
import numpy as np

import ggml_blocks
import kvcheck_golden as kg
import machine
import regimes

VERSION = importlib.metadata.version("gguf")
TYPES = {name: gguf.GGMLQuantizationType[name.upper()] for name in ggml_blocks.TYPES}
FILES = {"gguf_blocks": ("q8_0", "q4_0", "q5_0"), "gguf_minimum_blocks": ("q4_1", "q5_1", "iq4_nl")}
COARSE_BITS = 4  # of 5 bits it depends on the data whether a round trip proves something: none is stored
# Without f16_range, whose scale leaves f16.
FAMILIES = tuple(family for family in regimes.CODEC_ROWS if family != "f16_range")


def text_of(direction, name, kind, x):
    return f"codec op={direction} format={name} x={kind} rows={x.shape[0]} d={x.shape[1]} data=file"


def record(function, **fields):
    return dict(implementation=function, version=f"gguf {VERSION}", machine=machine.describe(), **fields)


def add(writer, label, name, kind, x, round_trip=True):
    """x: as stored in `kind`."""
    rows = regimes.widen(x, kind).astype(np.float32)
    is_written = name != "iq4_nl"
    blocks = gguf.quants.quantize(rows, TYPES[name]) if is_written else ggml_blocks.encode(rows, name)
    y = gguf.quants.dequantize(blocks, TYPES[name]).astype(np.float32)
    given, stored = {"x": regimes.typed(x, kind)}, {"blocks": kg.Typed(blocks, "uint8", kv_format=name)}
    if is_written:
        case = writer.case(f"encode.{label}", text_of("encode", name, kind, x), given)
        case.observed("gguf", stored, **record("gguf.quants.quantize"))
    case = writer.case(f"decode.{label}", text_of("decode", name, kind, x), stored)
    case.observed("gguf", {"y": regimes.typed(y, "f32")}, **record("gguf.quants.dequantize"))
    if not round_trip or not is_written or ggml_blocks.TYPES[name].bits == 5:
        return
    expectation = {}
    if ggml_blocks.TYPES[name].bits <= COARSE_BITS:
        expectation = dict(expect="MISTRUSTED", reason=f"a step of {ggml_blocks.TYPES[name].bits} bits is a large part of these data: a "
                           "round trip within it proves little; the cases encode and decode judge every byte")
    case = writer.case(f"round_trip.{label}", text_of("round_trip", name, kind, x), given)
    case.observed("gguf", {"y": regimes.typed(y, "f32")}, **record("gguf.quants.dequantize(quantize(x))", **expectation))


def many(name, count):
    """COUNT values of all magnitudes, with ties."""
    rng = regimes.generator(f"many.{name}")
    blocks = (count + 127) // 128 * 4
    x = rng.standard_normal((blocks, 32)) * 2.0 ** rng.integers(-12, 12, (blocks, 1))
    x[::4] = np.round(x[::4] * 64) / 64
    x[1::8] *= rng.standard_normal((len(x[1::8]), 32)) ** 4
    return x.astype(np.float32).reshape(-1, 128)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent / "data")
    parser.add_argument("--values", type=int)
    options = parser.parse_args()
    for stem, names in ({"gguf_blocks": tuple(TYPES)} if options.values else FILES).items():
        path = pathlib.Path(options.directory) / f"{stem}.h5"
        with kg.Writer(str(path), source=f"gguf {VERSION}", command="python golden/make/make_gguf.py") as writer:
            for name in names:
                if options.values:
                    add(writer, f"{name}.many", name, "f32", many(name, options.values), round_trip=False)
                    continue
                for kind in ("f32", "f16", "bf16"):
                    rng = regimes.generator(f"ggml.{name}.{kind}")
                    rows = regimes.codec_rows(kind, ggml_blocks.TYPES[name].bits, 128, rng, FAMILIES)
                    add(writer, f"{name}.{kind}", name, kind, rows)
        print(path)


if __name__ == "__main__":
    main()
