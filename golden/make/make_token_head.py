"""Makes fp8_scaled.h5 (PyTorch and ml_dtypes on a CPU) and vllm_token_head.h5 (vLLM's writers, transcribed in numpy).

Usage: python make_token_head.py [DIRECTORY]                  (default: ../data beside this file)
       python make_token_head.py --values COUNT [DIRECTORY]   COUNT values of each format and setting in place of the
                                                              stored rows, for `kvcheck golden verify DIRECTORY/*.h5`
Needs the packages of requirements-torch.txt and requirements-fp8.txt.

PyTorch's cast to e4m3fn saturates, infinity too, where ml_dtypes makes NaN; its cast to e5m2 makes infinity, to the fnuz
types NaN, as ml_dtypes.
"""
import argparse
import importlib.metadata
import pathlib

import ml_dtypes
import numpy as np
import torch

import kvcheck_golden as kg
import machine
import regimes
import token_head

TORCH = importlib.metadata.version("torch")
ML_DTYPES = importlib.metadata.version("ml_dtypes")
VLLM = "vllm triton_reshape_and_cache_flash.py after pull request 45361, in numpy"
VLLM_TRUNCATE = "vllm triton_reshape_and_cache_flash.py before pull request 45361, in numpy"
VLLM_INT4 = "vllm int4_per_token_head.py of pull request 40835, in numpy"
HEAD_DIM = 64
TENSOR_SCALES = {"e4m3fn": 1.25, "e5m2": 0.5, "e4m3fnuz": 2.5, "e5m2fnuz": 0.3, "int8": 0.05}
ROW_TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Rows of zeros divide by 0 in PyTorch (tiny ones are zeros in float16); subnormal rows have scales that are 0, or nearly.
DYNAMIC_ROWS = tuple(f for f in regimes.CODEC_ROWS if f not in ("zeros", "tiny", "subnormal", "f16_range"))
VLLM_ROWS = tuple(f for f in regimes.CODEC_ROWS if f != "f16_range")


def family(code):
    return "int8" if code == "int8" else f"fp8:{code}"


def text_of(direction, name, kind, x):
    return f"codec op={direction} format={name} x={kind} rows={x.shape[0]} d={x.shape[1]} data=file"


def plane(name, array, text):
    return kg.Typed(array, axes=("", ""), kv_format=text if name != "scales" else None)


def torch_rows(stored, kind):
    return torch.from_numpy(regimes.widen(stored, kind).astype(np.float32)).to(ROW_TYPES[kind])


def torch_codes(x, code, scales):
    if code == "int8":
        return torch.round(x / scales).clamp(-128, 127).to(torch.int8).numpy()
    return (x / scales).to(getattr(torch, f"float8_{code}")).view(torch.uint8).numpy()


def torch_values(codes, code, scales):
    held = torch.from_numpy(np.ascontiguousarray(codes))
    if code != "int8":
        held = held.view(getattr(torch, f"float8_{code}"))
    return held.to(torch.float32) * scales


def torch_planes(x, text):
    """x / (max|x| / largest) within the codes, or x over the format's scale as the cast does it."""
    code, place, _ = token_head.parts_of(text)
    x = x.to(torch.float32)
    if place.startswith("s"):
        return {"codes": torch_codes(x, code, torch.tensor(float(place[1:]), dtype=torch.float32))}
    largest = 127.0 if code == "int8" else torch.finfo(getattr(torch, f"float8_{code}")).max
    scales = x.abs().amax(-1, keepdim=True) / largest
    # A position may pass the largest code by an ulp or two, which rounds back to it.
    return {"codes": torch_codes(x, code, scales), "scales": scales.numpy()}


def stored_rows(values, kind):
    held = values.to(ROW_TYPES[kind])
    return held.view(torch.int16).numpy().view(np.uint16) if kind == "bf16" else held.numpy()


def add(writer, label, impl, text, kind, x, planes, profile, version, values=None):
    """values: float32 of the planes, where the implementation reads them."""
    record = dict(version=version, machine=machine.describe())
    stored = {name: plane(name, array, text) for name, array in planes.items()}
    given = {"x": regimes.typed(x, kind)}
    case = writer.case(f"encode.{label}", text_of("encode", text, kind, x), given)
    case.observed(impl, stored, implementation=f"{impl} encode", profile=profile, **record)
    if values is None:
        return
    y = {"y": regimes.typed(stored_rows(values, kind), kind)}
    case = writer.case(f"decode.{label}", text_of("decode", text, kind, x), stored)
    case.observed(impl, y, implementation=f"{impl} decode", profile="decode=two_roundings", **record)


def special_row(code, scale):
    """Around what overflows, the smallest codes, and what is not finite."""
    largest = float(token_head.largest_of(code))
    half = 0.5 if code == "int8" else float(np.diff(token_head.magnitudes(code)[-2:])[0]) / 2
    smallest = 1.0 if code == "int8" else token_head.magnitudes(code)[1]
    points = [largest, largest + half, largest + 1.001 * half, largest + 0.999 * half, 3 * largest, 1e30, smallest / 2,
              smallest * 0.501, smallest * 1.5, 0.0]
    points = [sign * point * scale for point in points for sign in (1, -1)]
    if code != "int8":
        points += [np.inf, -np.inf, np.nan, -np.nan]
    row = np.zeros(HEAD_DIM)
    row[: len(points)] = points
    return row


def many(name, count):
    """COUNT values of all magnitudes, with ties and offsets."""
    rng = regimes.generator(f"many.{name}")
    rows = (count + 127) // 128
    x = rng.standard_normal((rows, 128)) * 2.0 ** rng.integers(-12, 12, (rows, 1))
    x[::4] = np.round(x[::4] * 64) / 64
    x[1::8] *= rng.standard_normal((len(x[1::8]), 128)) ** 4
    x[2::8] += 20 * rng.standard_normal((len(x[2::8]), 1))
    x[(x == 0).all(-1), 0] = 1 / 64  # no rows of zeros, over which PyTorch divides by 0
    return np.clip(x, -60000, 60000).astype(np.float32)  # float16 holds them


def rows_for(text, kind, count, families):
    code, place, _ = token_head.parts_of(text)
    if count:
        return regimes.to_storage(many(text, count), kind)
    rng = regimes.generator(f"token_head.{text}")
    x = regimes.codec_rows(kind, 4 if code == "int4zp" else 8, HEAD_DIM, rng, families)
    if not place.startswith("s"):
        return x
    return np.concatenate([x, regimes.to_storage(special_row(code, TENSOR_SCALES[code])[None], kind)])


def torch_file(path, count):
    with kg.Writer(str(path), source=f"torch {TORCH}, ml_dtypes {ML_DTYPES}",
                   command="python golden/make/make_token_head.py") as writer:
        for code, scale in TENSOR_SCALES.items():
            kinds = ("f32", "f16", "bf16") if count or code in ("e4m3fn", "int8") else ("f32",)
            for kind in kinds:
                for place in ("token", f"s{scale}"):
                    text = f"{family(code)}:{place}:{kind}"
                    x = rows_for(text, kind, count, DYNAMIC_ROWS)
                    planes = torch_planes(torch_rows(x, kind), text)
                    scales = torch.from_numpy(planes["scales"]) if "scales" in planes else torch.tensor(np.float32(scale))
                    saturates = code == "e4m3fn" and place != "token"
                    add(writer, f"torch.{text.replace(':', '.')}", "torch", text, kind, x, planes,
                        "fp8_overflow=saturate" if saturates else "", f"torch {TORCH}",
                        torch_values(planes["codes"], code, scales))
            if code == "int8":
                continue
            text = f"{family(code)}:s{scale}:f32"
            x = rows_for(text, "f32", count, DYNAMIC_ROWS)
            with np.errstate(all="ignore"):
                codes = (x / np.float32(scale)).astype(getattr(ml_dtypes, f"float8_{code}")).view(np.uint8)
            add(writer, f"ml_dtypes.{text.replace(':', '.')}", "ml_dtypes", text, "f32", x, {"codes": codes}, "",
                f"ml_dtypes {ML_DTYPES}")


def vllm_file(path, count):
    with kg.Writer(str(path), source="vLLM's Triton kernels, transcribed in numpy (golden/make/token_head.py)",
                   command="python golden/make/make_token_head.py") as writer:
        for code in ("e4m3fn", "e4m3fnuz", "int8", "int4zp"):
            name = code if code == "int4zp" else family(code)
            kinds = ("f32", "f16", "bf16") if count or code in ("int8", "int4zp") else ("bf16",)
            for kind in kinds:
                for place in ("token", "inline"):
                    text = f"{name}:{place}:{kind}"
                    for truncate in (False, True) if code == "int8" and place == "token" else (False,):
                        writer_name = "vllm_truncate" if truncate else "vllm"
                        x = rows_for(text, kind, count, VLLM_ROWS)
                        planes = token_head.encode(regimes.widen(x, kind), text, writer_name)
                        version = VLLM_INT4 if code == "int4zp" else VLLM_TRUNCATE if truncate else VLLM
                        values = None if truncate else torch.from_numpy(token_head.decode(planes, text))
                        add(writer, f"{writer_name}.{text.replace(':', '.')}", "vllm", text, kind, x, planes,
                            "" if code == "int4zp" else f"token_encode={writer_name}", version, values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent / "data")
    parser.add_argument("--values", type=int)
    options = parser.parse_args()
    for name, make in (("fp8_scaled.h5", torch_file), ("vllm_token_head.h5", vllm_file)):
        path = pathlib.Path(options.directory) / name
        make(path, options.values)
        print(path)


if __name__ == "__main__":
    main()
