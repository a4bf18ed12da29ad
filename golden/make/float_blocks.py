"""Blocks of small floats in numpy, a second writing beside the C++ of the project: mxfp4, mxfp8 and nvfp4 as their writers
make them. What check_golden.py holds golden files to, and where no library runs on a CPU, what make_float_blocks.py writes.

Transcribed from, one float32 operation at a time:
  ocp      OCP Microscaling Formats (MX) v1.0, section 6.3: floor of the exponent, nearest even, saturation
  up       the smallest power of two that is not below a / M, else as ocp: cvt.rp.satfinite.ue8m0x2 of CUDA as
           cutlass::float_ue8m0_t has it, MLX's Metal kernels since mlx PR 4353 (fp8.h, mx_scale_round_up; fp4.h)
  mlx      MLX 0.32.4, python/mlx fp quantize modes on a CPU; mlx_0_31: MLX 0.31.2
  sglang   SGLang, python/sglang/srt/layers/quantization/kvfp4_tensor.py at 0dae407b, FP4MXBlock16KVQuantizeUtil: a compiled
           function, which computes in float32 whatever the type of its input
  vllm, vllm_4over6   vLLM, csrc/libtorch_stable/nvfp4_kv_cache_kernels.cu at 0cd789b3, with cvt_warp_fp16_to_fp4 of
           nvfp4_utils.cuh at 20b4ad8e: rcp.approx.ftz taken as the correctly rounded reciprocal, the scale linear in memory
"""
from typing import NamedTuple

import numpy as np

import regimes

F32 = np.float32
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _fp8_values(exponent_bits, mantissa_bits, count):
    """The finite magnitudes of an fp8 type, by code."""
    code = np.arange(count)
    exponent, mantissa = code >> mantissa_bits, code & (1 << mantissa_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    scaled = np.where(exponent == 0, mantissa, mantissa + (1 << mantissa_bits))
    return scaled * 2.0 ** (np.maximum(exponent, 1) - bias - mantissa_bits)


MAGNITUDES = {"e2m1": E2M1, "e4m3": _fp8_values(4, 3, 127), "e5m2": _fp8_values(5, 2, 124)}
TOP_EXPONENT = {"e2m1": 2, "e4m3": 8, "e5m2": 15}


class Record(NamedTuple):
    element: str
    block: int
    global_scale: F32 | None  # None: a power of two a block
    kind: str

    @property
    def bits(self):
        return 4 if self.element == "e2m1" else 8


def parse(text):
    """The record of a format's text, or None."""
    name, *parts = text.split(":")
    if name == "mxfp4":
        return Record("e2m1", 16 if parts[0] == "g16" else 32, None, parts[-1])
    if name == "mxfp8":
        return Record(parts[0], 32, None, parts[1])
    if name == "nvfp4":
        return Record("e2m1", 16, F32(parts[0][1:] if len(parts) == 2 else 1), parts[-1])
    return None


def _to(x, kind):
    """float32, rounded to the type of rows."""
    return regimes.widen(regimes.to_storage(np.asarray(x, F32), kind), kind).astype(F32)


def nearest(w, magnitudes, ties):
    """Indices of the magnitudes nearest to |w|; beyond the last, the last. ties: even, down, up."""
    size = np.abs(w.astype(np.float64))
    middles = (magnitudes[1:] + magnitudes[:-1]) / 2
    below, through = np.searchsorted(middles, size, "left"), np.searchsorted(middles, size, "right")
    return {"down": below, "up": through, "even": np.where(below % 2 == 0, below, through)}[ties]


def _mlx_codes(w, record):
    """Ties to the smaller magnitude, zero without a sign: the first element whose distance in f32 is least."""
    codes = _codes(w, record, "down", w < 0)
    far = np.abs(w) >= 2**24
    first = np.abs(np.abs(w[far])[..., None] - E2M1.astype(F32)).argmin(-1)
    codes[far] = np.where(first == 0, 0, first | (w[far] < 0).astype(np.int64) << 3)
    codes[codes == 8] = 0
    return codes


def _codes(w, record, ties, sign):
    return nearest(w, MAGNITUDES[record.element], ties) | sign.astype(np.int64) << (record.bits - 1)


def _log2(q):
    return np.log2(q.astype(np.float64)).astype(F32)


def _mx(x, record, encode):
    a = np.abs(x).max(-1)
    largest = F32(MAGNITUDES[record.element][-1])
    if encode == "ocp":
        with np.errstate(divide="ignore"):
            exponent = np.floor(np.log2(a.astype(np.float64))) - TOP_EXPONENT[record.element]
        exponent = np.maximum(exponent, -127)
    elif encode == "up":
        q = a / largest
        with np.errstate(divide="ignore"):
            exponent = np.maximum(np.ceil(np.log2(q.astype(np.float64))), -127)
    elif encode == "sglang":
        exponent = np.ceil(_log2(np.maximum(a / largest, F32(1e-10))))
    else:
        q = _to(a / largest, record.kind)
        exponent = np.zeros_like(q)
        logs = _log2(q[q > 0])
        exponent[q > 0] = np.ceil(logs) if encode == "mlx" else np.rint(_to(logs, record.kind))
    power = 2.0 ** exponent.astype(np.float64)
    w = (x / power[..., None]).astype(F32)
    if encode.startswith("mlx"):
        w = _to(w, record.kind)
    if record.bits == 8:
        codes = _codes(w, record, "even", np.signbit(w))
    elif encode in ("ocp", "up"):
        codes = _codes(w, record, "even", np.signbit(w))
    elif encode == "sglang":
        codes = _codes(w, record, "up", w < 0)
    else:
        codes = _mlx_codes(w, record)
    return codes, (exponent.astype(np.int64) + 127) % 256


def _e4m3(scale):
    return nearest(np.minimum(scale, F32(448)), MAGNITUDES["e4m3"], "even")


def _e4m3_value(code):
    return MAGNITUDES["e4m3"][code].astype(F32)


def _vllm(a, encode_scale, top):
    """The scale's code and the factor of elements for a block's largest magnitude to become top."""
    code = _e4m3(encode_scale * (a * (F32(1) / F32(top))))
    value = _e4m3_value(code) * (F32(1) / encode_scale)
    with np.errstate(divide="ignore"):
        return code, np.where(code == 0, F32(0), F32(1) / value)


def _squared_error(x, factor):
    w = x * factor[..., None]
    element = np.copysign(E2M1[nearest(w, E2M1, "even")], w).astype(F32)
    with np.errstate(divide="ignore"):
        back = np.where(factor == 0, F32(0), F32(1) / factor)
    d = element * back[..., None] - x
    total = np.zeros(x.shape[:-1], F32)
    for pair in range(x.shape[-1] // 2):
        total += d[..., 2 * pair] * d[..., 2 * pair] + d[..., 2 * pair + 1] * d[..., 2 * pair + 1]
    return total


def _nvfp4(x, record, encode):
    a = np.abs(x).max(-1)
    if encode == "mlx":
        scale = _e4m3(_to(a / F32(6), record.kind) / record.global_scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            w = _to(x / (_e4m3_value(scale) * record.global_scale)[..., None], record.kind)
        w[scale == 0] = 0
        codes = _mlx_codes(w, record)
        return codes, scale
    encode_scale = F32(1) / record.global_scale
    with np.errstate(over="ignore"):
        scale, factor = _vllm(a, encode_scale, 6)
        if encode == "vllm_4over6":
            scale4, factor4 = _vllm(a, encode_scale, 4)
            four = _squared_error(x, factor4) < _squared_error(x, factor)
            scale, factor = np.where(four, scale4, scale), np.where(four, factor4, factor)
        w = x * factor[..., None]
    return _codes(w, record, "even", np.signbit(w)), scale


def encode(x, text, writer):
    """The planes of finite rows (..., head_dim): codes and scales, as bytes."""
    record = parse(text)
    x = np.asarray(x, F32)
    blocks = x.reshape(*x.shape[:-1], -1, record.block)
    codes, scales = (_mx if record.global_scale is None else _nvfp4)(blocks, record, writer)
    codes = codes.reshape(x.shape).astype(np.uint8)
    if record.bits == 4:
        codes = codes[..., 0::2] + 16 * codes[..., 1::2]
    return codes, scales.astype(np.uint8)


def decode(codes, scales, text):
    """float32 values of the row type: scale and product each rounded to it (nvfp4: to float32 first)."""
    record = parse(text)
    if record.bits == 4:
        codes = np.stack([codes % 16, codes // 16], -1).reshape(*codes.shape[:-1], -1)
    magnitudes = MAGNITUDES[record.element]
    half = 1 << (record.bits - 1)
    padded = np.full(half, np.nan)
    padded[:len(magnitudes)] = magnitudes
    if record.element == "e5m2":
        padded[124] = np.inf
    element = np.where(codes >= half, -padded[codes % half], padded[codes % half]).astype(F32)
    with np.errstate(over="ignore", invalid="ignore"):
        if record.global_scale is None:
            powers = np.append(2.0 ** (np.arange(255) - 127.0), np.nan).astype(F32)
            scale = _to(powers[scales], record.kind)
        else:
            values = np.append(MAGNITUDES["e4m3"], np.nan)
            scale = np.concatenate([values, -values]).astype(F32)[scales] * record.global_scale
        return _to(element * np.repeat(scale, record.block, -1), record.kind)
