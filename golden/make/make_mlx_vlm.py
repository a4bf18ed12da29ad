"""Makes mlx_vlm_turboquant.h5: what mlx-vlm's TurboQuant codecs (_TurboQuantMSECodec, and _SplitCodec of fractional bits, which
chooses its channels by the rows) write and read on MLX's CPU backend; and mlx_vlm_prod.h5: the same of
_TurboQuantProdCodec, its inner-product codec, which no cache of the library makes.

Usage: python make_mlx_vlm.py [DIRECTORY]                    (default: ../data beside this file)
       python make_mlx_vlm.py --values COUNT [DIRECTORY]     COUNT values of each setting in place of the stored rows, for
                                                             `kvcheck golden verify DIRECTORY/mlx_vlm_*.h5`
       ... --only PATTERN                                    settings of this text alone
Needs the packages of requirements-mlx-vlm.txt, installed without what they depend on (pip install --no-deps; also numpy and
h5py): the codec stands in one module, which needs mlx and numpy. The codebook is data: where the library computes another one
here than the set that the format names, it is given that set.
"""
import argparse
import fnmatch
import importlib.metadata
import importlib.util
import pathlib
import sys
import types

import mlx.core as mx
import numpy as np

import kvcheck_golden as kg
import machine
import regimes
import turboquant_groups

VERSION = f"mlx-vlm {importlib.metadata.version('mlx-vlm')}, mlx {importlib.metadata.version('mlx')}"
# Norms of all of them are float16.
FAMILIES = tuple(family for family in regimes.CODEC_ROWS if family != "f16_range")
MLX_TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def codec_module():
    """mlx_vlm.turboquant without the package's own imports (models, tokenizers)."""
    package = types.ModuleType("mlx_vlm")
    package.__path__ = list(importlib.util.find_spec("mlx_vlm").submodule_search_locations)
    sys.modules["mlx_vlm"] = package
    return importlib.import_module("mlx_vlm.turboquant")


def with_centroids(codec, text):
    """The codec, with those of the format where it has computed others."""
    centroids = turboquant_groups.Format(text).centroids
    if not np.array_equal(np.array(codec.codebook), centroids):
        codec.codebook = mx.array(centroids)
        codec._midpoints = (codec.codebook[:-1] + codec.codebook[1:]) / 2
    return codec


def codec_of(module, text, rows):
    """(codec, its format's text, stored planes of its state). text: with half a bit without the channels, which are chosen by
    the rows (B, H, T, D)."""
    if turboquant_groups.is_prod(text):
        prod = turboquant_groups.Prod(text)
        codec = module._TurboQuantProdCodec(prod.d, prod.bits, prod.seed)
        if prod.codes_text is not None:
            with_centroids(codec.mse_codec, prod.codes_text)
        assert np.array_equal(np.array(codec.projection), prod.projection)
        return (codec, text,
                lambda state: (np.concatenate([np.array(state.mse_indices)[0, 0], np.array(state.qjl_signs)[0, 0]], -1),
                               *(np.array(norms)[0, 0][:, None] for norms in (state.norms, state.residual_norms))))
    if ".5:" not in text:
        fmt = turboquant_groups.Format(text)
        return (with_centroids(module._TurboQuantMSECodec(fmt.d, fmt.bits, fmt.seed), text), text,
                lambda state: (np.array(state.indices)[0, 0], np.array(state.norms)[0, 0][:, None]))
    _, bits, group, *rest = text.split(":")
    seed = next((int(part[1:]) for part in rest if part[0] == "s"), 0)
    codec = module._SplitCodec(rows, float(bits), "mse", seed)
    high = np.zeros(int(group[1:]), bool)
    high[np.array(codec.high_idx)] = True
    at = 3 if rest[0] in ("mlx_vlm", "exact") else 2
    parts = [*text.split(":")[:at + 1], "h" + turboquant_groups.mask_text(high), *text.split(":")[at + 1:]]
    text = ":".join(parts)
    for (half, channels), of_half, index in zip(turboquant_groups.halves_of(text), (codec.low_codec, codec.high_codec),
                                                (codec.low_idx, codec.high_idx)):
        assert channels.tolist() == np.array(index).tolist()
        with_centroids(of_half, half)

    def planes(state):
        return (np.concatenate([np.array(half.indices)[0, 0] for half in (state.low, state.high)], -1),
                np.stack([np.array(half.norms)[0, 0] for half in (state.low, state.high)], -1))
    return codec, text, planes


def as_mlx(stored, kind):
    if kind == "bf16":
        return mx.array(stored).view(mx.bfloat16)
    return mx.array(stored)


def as_stored(array, kind):
    array = array.astype(MLX_TYPES[kind])
    return np.array(array.view(mx.uint16)) if kind == "bf16" else np.array(array)


def text_of(direction, text, kind, x):
    return f"codec op={direction} format={text} x={kind} rows={x.shape[0]} d={x.shape[1]} data=file"


def add(writer, module, label, text, x, round_trip=False):
    """x: (rows, group), as stored in the format's type of rows. text: as codec_of has it."""
    kind = text.rsplit(":", 1)[1]
    rows = as_mlx(x, kind)[None, None]  # (B, H, T, D)
    codec, text, planes = codec_of(module, text, rows)
    state = codec.quantize(rows)
    y = as_stored(codec.dequantize(state)[0, 0], kind)
    words, *norms = planes(state)
    stored = {"codes": kg.Typed(words, "uint32", kv_format=text)}
    stored.update((name, kg.Typed(array, "float16")) for name, array in zip(("norms", "residual_norms"), norms))
    # The sums of a projection are a matrix product, whose order no profile names.
    decode = "exact" if turboquant_groups.is_prod(text) else "two_roundings"
    given = {"x": regimes.typed(x, kind)}
    name = type(codec).__name__

    def record(function, **fields):
        return dict(implementation=function, version=VERSION, machine=machine.describe(), profile=f"decode={decode}", **fields)

    case = writer.case(f"encode.{label}", text_of("encode", text, kind, x), given)
    case.observed("mlx-vlm", stored, **record(f"{name}.quantize"))
    case = writer.case(f"decode.{label}", text_of("decode", text, kind, x), stored)
    case.observed("mlx-vlm", {"y": regimes.typed(y, kind)}, **record(f"{name}.dequantize"))
    if not round_trip:
        return
    case = writer.case(f"round_trip.{label}", text_of("round_trip", text, kind, x), given)
    case.observed("mlx-vlm", {"y": regimes.typed(y, kind)},
                  **record("dequantize(quantize(x))", expect="MISTRUSTED",
                           reason="the error of few bits is a large part of these data: a round trip within its bound proves "
                                  "little; the cases encode and decode judge every code"))


def dimension_of(text):
    return int(next(part[1:] for part in text.split(":") if part[0] == "g"))


def bits_of(text):
    return int(float(text.removeprefix("turboquant:").removeprefix("prod:").split(":")[0]))


def edge_rows(d):
    """One element, two equal ones, the row that rotates to one coordinate, zeros, rows about and below the floor of 1e-6."""
    rows = np.zeros((8, d))
    rows[0, 3] = 2.0
    rows[1, [5, d - 1]] = -1.5
    rows[2] = np.random.default_rng(7919 * d).choice([-1.0, 1.0], d)
    wave = np.sin(1.0 + np.arange(d)) / np.sqrt(d / 2)
    rows[4], rows[5], rows[6], rows[7] = wave * 5e-7, wave * 2e-8, wave * 9e4 / 2, wave * 6e4
    return rows.astype(np.float32)


STORED = (
    *(f"turboquant:{bits}:g{d}:mlx_vlm:f32" for d in (64, 128) for bits in (1, 2, 3, 4)),
    "turboquant:4:g32:mlx_vlm:f32", "turboquant:3:g256:mlx_vlm:f32", "turboquant:3:g64:mlx_vlm:s97:f32",
    "turboquant:3:g64:mlx_vlm:s1:f16", "turboquant:4:g128:mlx_vlm:s1:bf16",
    "turboquant:5:g32:f32", "turboquant:4:g128:f32", "turboquant:3:g512:f32",
    "turboquant:3.5:g128:mlx_vlm:f32", "turboquant:2.5:g64:mlx_vlm:s1:f16", "turboquant:1.5:g64:mlx_vlm:bf16", "turboquant:4.5:g64:f32")
STORED_PROD = (
    *(f"turboquant:prod:{bits}:g64:mlx_vlm:f32" for bits in (2, 3, 4, 5)), "turboquant:prod:1:g64:f32",
    "turboquant:prod:4:g128:mlx_vlm:f32", "turboquant:prod:4:g32:mlx_vlm:s1:bf16", "turboquant:prod:3:g64:mlx_vlm:s97:f16",
    "turboquant:prod:2:g256:mlx_vlm:f32", "turboquant:prod:4:g64:f32")
WITH_EDGES = ("turboquant:4:g64:mlx_vlm:f32", "turboquant:4:g128:f32", "turboquant:prod:4:g64:mlx_vlm:f32", "turboquant:prod:1:g64:f32")


def every_setting():
    """Codebooks of the library, K's and V's seed, and types of rows; then the exact codebooks."""
    for d in (32, 64, 128, 256):
        for bits in (1, 2, 3, 4):
            yield f"turboquant:{bits}:g{d}:mlx_vlm:f32"
            yield f"turboquant:{bits}:g{d}:mlx_vlm:s1:{'f16' if bits % 2 else 'bf16'}"
    for d in (32, 64, 128, 256, 512):
        for bits in (1, 2, 3, 4, 5):
            yield f"turboquant:{bits}:g{d}:f32"
    for d in (64, 128, 256):
        for bits in (1.5, 2.5, 3.5):
            yield f"turboquant:{bits}:g{d}:mlx_vlm:f32"
            yield f"turboquant:{bits}:g{d}:mlx_vlm:s1:{'f16' if bits == 2.5 else 'bf16'}"
        yield f"turboquant:4.5:g{d}:f32"


def every_prod_setting():
    for d in (32, 64, 128, 256):
        yield f"turboquant:prod:1:g{d}:s{d % 3}:f32".replace(":s0", "")
        for bits in (2, 3, 4, 5):
            yield f"turboquant:prod:{bits}:g{d}:mlx_vlm:f32"
            yield f"turboquant:prod:{bits}:g{d}:mlx_vlm:s1:{'f16' if bits % 2 else 'bf16'}"
    for bits in (1, 3, 5):
        yield f"turboquant:prod:{bits}:g128:f32"
    yield "turboquant:prod:4:g512:f32"


def many(text, count):
    """COUNT values: normal rows of all magnitudes, a quarter with outlier channels, a quarter of integers, a quarter sparse."""
    d, kind = dimension_of(text), text.rsplit(":", 1)[1]
    rng = regimes.generator(f"many.{text}")
    rows = (count + d - 1) // d
    x = rng.standard_normal((rows, d)) * 2.0 ** rng.integers(-8, 8, (rows, 1))
    x[1::4, ::17] *= 30
    x[2::4] = np.round(x[2::4] * 4)
    x[3::4] *= rng.random((len(x[3::4]), d)) < 0.2
    return regimes.to_storage(x.astype(np.float32), kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent / "data")
    parser.add_argument("--values", type=int)
    parser.add_argument("--only", default="*", help="settings that match the pattern, as 'turboquant:*.5:*'")
    options = parser.parse_args()
    module = codec_module()
    for name, stored, every in (("mlx_vlm_turboquant", STORED, every_setting), ("mlx_vlm_prod", STORED_PROD, every_prod_setting)):
        texts = fnmatch.filter(every() if options.values else stored, options.only)
        if texts:
            write(module, pathlib.Path(options.directory) / f"{name}.h5", texts, options.values)


def write(module, path, texts, values):
    """values: how many of each setting, in place of the stored rows."""
    with kg.Writer(str(path), source=VERSION, command="python golden/make/make_mlx_vlm.py") as writer:
        for text in texts:
            d = dimension_of(text)
            label = text.removeprefix("turboquant:").replace(":", ".")
            if values:
                add(writer, module, f"{label}.many", text, many(text, values))
                continue
            rng = regimes.generator(f"turboquant.{text}")
            families = FAMILIES if d == 64 else FAMILIES[:1] if d > 128 else ("gauss", "outlier", "ties")
            x = regimes.codec_rows(text.rsplit(":", 1)[1], bits_of(text), d, rng, families)
            add(writer, module, label, text, x, round_trip=text == WITH_EDGES[0])
            if text in WITH_EDGES:
                add(writer, module, f"{label}.edges", text, edge_rows(d))
    print(path)


if __name__ == "__main__":
    main()
