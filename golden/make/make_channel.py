"""Makes what writers of codes per channel write and read, groups of tokens with one scale and one zero per channel, on a CPU, and
of the codes that go with them for V, groups of channels of one token:

quanto_channel.h5    optimum-quanto, by the calls of transformers' quantized cache (MaxOptimizer, quantize_weight; cache_utils.py
                     of transformers 5.23.0, QuantoQuantizedLayer with axis_key=-1)
quanto_affine.h5     the same with axis=0, the default of transformers' quantized cache, rows of whole groups: KIVI's V
hqq_channel.h5       hqq's Quantizer with axis=0 and optimize=False, each group of tokens a tensor of its own; transformers leaves
                     optimize=True, whose zero is found by a search
openvino_channel.h5  OpenVINO's u8 and u4 keys by channel, as its CPU plugin writes them into the cache (openvino_cache.py)
transcribed_channel.h5  the same and what the plugin makes of it, transcribed in numpy (channel_groups.py), since nothing shows
                     what it reads: no library's answer

Usage: python make_channel.py [DIRECTORY]      (default: ../data beside this file)
       ... --only NAME                         quanto, quanto_affine, hqq, openvino or transcribed
       ... --values COUNT                      COUNT values of each format and type, rounded up to groups, in place of the
                                               stored ones, for `kvcheck golden verify`
Needs the packages of requirements-channel.txt.
"""
import argparse
import importlib.metadata
import pathlib

import numpy as np

import channel_groups
import kvcheck_golden as kg
import machine
import regimes

KINDS = ("f32", "f16", "bf16")
CHANNELS = 16
# Without f16_range, whose ranges leave f16. Under quanto tiny and subnormal have scales of 0, whose codes are NaN cast to an
# integer.
FAMILIES = ("gauss", "outlier", "constant", "all_negative", "zeros", "ties", "channels")


# ---------------------------------------------------------------------------------- rows: (groups, group * CHANNELS)


def tokens_of(family, group, rng):
    """One group, (group, CHANNELS). ties: sixteenths under a scale of 1 or 5, so that positions end in 1/2. channels:
    magnitudes 2^-8 to 2^8 from channel to channel, as keys have them."""
    if family == "ties":
        x = rng.integers(0, 241, (group, CHANNELS)) / 16.0
        x[0], x[1] = 0, 15
        return x
    if family == "channels":
        return rng.standard_normal((group, CHANNELS)) * 2.0 ** rng.integers(-8, 9, CHANNELS)
    rows = regimes.codec_rows("f32", 4, 128, rng, (family,) * (group * CHANNELS // 128))
    return regimes.widen(rows, "f32").reshape(group, CHANNELS)


def rows_of(group, kind, name, count):
    rng = regimes.generator("channel." + name)
    if count:
        groups = -(-count // (CHANNELS * group))
        x = rng.standard_normal((groups, group, CHANNELS)) * 2.0 ** rng.integers(-6, 7, (groups, 1, CHANNELS))
        x[::4] = np.round(x[::4] * 16) / 16
        x[1::8] *= rng.random((len(x[1::8]), group, CHANNELS)) < 0.1
    else:
        x = np.stack([tokens_of(family, group, rng) for family in FAMILIES])
    return regimes.to_storage(x.reshape(-1, group * CHANNELS), kind)


def rows_of_tokens(x, group):
    """The same groups along channels: rows (tokens, 128), each of whole groups."""
    return np.ascontiguousarray(x.reshape(-1, group, CHANNELS).swapaxes(1, 2)).reshape(-1, 128)


# -------------------------------------------------------------------------------- writers: x -> codes, scales, zeros, y


def from_torch(tensor):
    import torch

    tensor = tensor.contiguous()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def to_torch(x, kind):
    import torch

    return torch.from_numpy(x).view(torch.bfloat16) if kind == "bf16" else torch.from_numpy(x)


def quanto(x, kind, bits, group):
    """quanto keeps codes as (group, channels * groups), and subtracts a shift where kvcheck adds a zero; both are
    rearranged, none is computed anew."""
    from optimum.quanto import MaxOptimizer, qint2, qint4, quantize_weight
    from optimum.quanto.tensor.grouped import ungroup

    tokens = to_torch(x, kind).reshape(1, 1, -1, CHANNELS)
    qtype = {2: qint2, 4: qint4}[bits]
    scale, shift = MaxOptimizer()(tokens, qtype, -1, group)
    stored = quantize_weight(tokens, qtype, -1, scale, shift, group)
    codes = ungroup(stored._data.unpack(), -1, tokens.shape).reshape(len(x), -1).numpy()
    by_group = [from_torch(part.reshape(CHANNELS, len(x)).t()) for part in (scale, -shift + 0)]
    return codes, *by_group, from_torch(stored.dequantize().reshape(len(x), -1))


def quanto_affine(x, kind, bits, group):
    """Groups are consecutive elements of the flattened (B, H, T, D), so that a row of whole groups is coded by itself."""
    from optimum.quanto import MaxOptimizer, qint2, qint4, quantize_weight
    from optimum.quanto.tensor.grouped import ungroup

    tokens = to_torch(x, kind).reshape(1, 1, *x.shape)
    qtype = {2: qint2, 4: qint4}[bits]
    scale, shift = MaxOptimizer()(tokens, qtype, 0, group)
    stored = quantize_weight(tokens, qtype, 0, scale, shift, group)
    codes = ungroup(stored._data.unpack(), 0, tokens.shape).reshape(x.shape).numpy()
    by_row = [from_torch(part.reshape(len(x), -1)) for part in (scale, -shift + 0)]
    return codes, *by_row, from_torch(stored.dequantize().reshape(x.shape))


def hqq(x, kind, bits, group):
    import torch
    from hqq.core.quantize import Quantizer

    parts = []
    for row in to_torch(x, kind):
        stored, meta = Quantizer.quantize(row.reshape(group, CHANNELS), nbits=bits, axis=0, group_size=group, optimize=False,
                                          compute_dtype=row.dtype, device="cpu")
        meta["compute_dtype"] = row.dtype
        stored, meta = Quantizer.to_inplace(stored, meta, "cpu")
        codes = stored if bits == 8 else Quantizer.unpack[meta["packing"]](stored, dtype=torch.uint8)
        y = Quantizer.dequantize(stored, meta)
        parts.append([codes.reshape(-1).numpy(), *(from_torch(part.reshape(-1)) for part in (meta["scale"], meta["zero"], y))])
    return [np.stack(part) for part in zip(*parts)]


def openvino(x, kind, bits, group):
    """Each row a sequence of one block; what is read shows in attention alone."""
    import openvino_cache

    cache = openvino_cache.KeyCache(bits, CHANNELS, len(x), 1)
    cache.append(regimes.widen(x, kind).astype(np.float32).reshape(-1, group, CHANNELS))
    codes, scales, zeros = cache.stored()
    return codes.reshape(len(x), -1), scales, zeros, None


def transcribed(x, kind, bits, group):
    tokens = regimes.widen(x, kind).astype(np.float32).reshape(-1, group, CHANNELS)
    codes, scales, zeros = channel_groups.encode(tokens, bits, "f32", "openvino")
    y = channel_groups.decode(codes, scales, zeros, "f32", "openvino")
    return codes.astype(np.uint8).reshape(len(x), -1), scales, zeros, y.reshape(len(x), -1)


# name: file, writer, bits, groups, profile, whether planes are f32 whatever the rows are, packages, implementation
WRITERS = {
    "quanto": ("quanto_channel.h5", quanto, (2, 4), (32, 64), "", False, ("optimum-quanto", "torch"),
               "MaxOptimizer, quantize_weight(axis=-1), dequantize"),
    "quanto_affine": ("quanto_affine.h5", quanto_affine, (2, 4), (32, 64, 128), "encode=kivi", False, ("optimum-quanto", "torch"),
                      "MaxOptimizer, quantize_weight(axis=0), dequantize"),
    "hqq": ("hqq_channel.h5", hqq, (2, 4, 8), (32,), "channel=hqq", False, ("hqq", "torch"),
            "Quantizer.quantize(axis=0, optimize=False), dequantize"),
    "openvino": ("openvino_channel.h5", openvino, (4, 8), (32,), "channel=openvino", True, ("openvino",),
                 "PagedAttentionExtension, KEY_CACHE_QUANT_MODE=BY_CHANNEL"),
    "transcribed": ("transcribed_channel.h5", transcribed, (4, 8), (32,), "channel=openvino", True, ("numpy",),
                    "transcription of quant_u8_by_channel_kernel, vector code")}


def make(name, directory, count):
    file, write, all_bits, groups, profile, in_f32, packages, implementation = WRITERS[name]
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    values = 0
    with kg.Writer(str(directory / file), source=versions, command="python golden/make/make_channel.py") as writer:
        for kind in KINDS:
            for bits in all_bits:
                for group in groups:
                    stored_kind = "f32" if in_f32 else kind
                    family, zeros_name = ("affine", "biases") if write is quanto_affine else ("channel", "zeros")
                    text, label = f"{family}:{bits}:g{group}:{stored_kind}", f"b{bits}.g{group}.{kind}"
                    x = rows_of(group, kind, label, count)
                    if family == "affine":
                        x = rows_of_tokens(x, group)
                    codes, scales, zeros, y = write(x, kind, bits, group)
                    planes = {"codes": kg.Typed(channel_groups.packed(codes, bits), "uint32", kv_format=text),
                              "scales": regimes.typed(scales, stored_kind), zeros_name: regimes.typed(zeros, stored_kind)}
                    record = dict(machine=machine.describe(), version=versions, implementation=implementation)

                    def case(direction):
                        return (f"codec op={direction} format={text} x={kind} rows={x.shape[0]} d={x.shape[1]} data=file")

                    writer.case("encode." + label, case("encode"), {"x": regimes.typed(x, kind)}).observed(
                        name, planes, profile=profile, **record)
                    if y is not None:
                        writer.case("decode." + label, case("decode"), planes).observed(
                            name, {"y": regimes.typed(y, stored_kind)}, profile=(profile + " decode=two_roundings").strip(), **record)
                    values += x.size
    print(directory / file, values, "values")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "data")
    parser.add_argument("--only", choices=WRITERS)
    parser.add_argument("--values", type=int, default=0)
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else WRITERS:
        make(name, arguments.directory, arguments.values)


if __name__ == "__main__":
    main()
