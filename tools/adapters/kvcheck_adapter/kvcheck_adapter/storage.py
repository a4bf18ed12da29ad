"""Types of elements: the names of the wire, the numpy types that hold them, and values of those that numpy lacks.

bf16 is held as uint16, fp8 as uint8. Conversions round to nearest, ties to even; above the largest finite value bf16
and e5m2 become infinite and e4m3fn, which has no infinity, becomes NaN.
"""
import numpy as np

STORED = {
    "f64": np.dtype("<f8"), "f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2"),
    "f8e4m3fn": np.dtype("u1"), "f8e5m2": np.dtype("u1"), "b8": np.dtype("?"),
    "i8": np.dtype("i1"), "i16": np.dtype("<i2"), "i32": np.dtype("<i4"), "i64": np.dtype("<i8"),
    "u8": np.dtype("u1"), "u16": np.dtype("<u2"), "u32": np.dtype("<u4"), "u64": np.dtype("<u8"),
}
# Names of numpy types; bf16 and fp8 only where another package brought types of that name.
_NAMES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3fn",
          "float8_e5m2": "f8e5m2", "bool": "b8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
          "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64"}
_BY_DTYPE = {}


def name_of(array, expected=None):
    """The wire's name of an array's type: `expected` where the array holds it, else the name of its own type."""
    dtype = array.dtype
    if expected is not None and STORED[expected] == dtype:
        return expected
    name = _BY_DTYPE.get(dtype)
    if name is None:
        name = _NAMES.get(dtype.name)
        if name is None:
            raise TypeError(f"arrays of {dtype.name} cannot be shown to kvcheck")
        _BY_DTYPE[dtype] = name
    return name


def _bf16_to_float32(stored):
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _bf16_from_float32(values):
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def _decode_fp8(exponent_bits, mantissa_bits, has_infinity):
    """The 256 values of an fp8 type."""
    bias = 2 ** (exponent_bits - 1) - 1
    values = np.empty(256, np.float32)
    for code in range(256):
        exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
        mantissa = code & (1 << mantissa_bits) - 1
        if exponent == 0:
            value = mantissa * 2.0 ** (1 - bias - mantissa_bits)
        else:
            value = (1 + mantissa * 2.0**-mantissa_bits) * 2.0 ** (exponent - bias)
        last = exponent == (1 << exponent_bits) - 1
        if has_infinity and last:
            value = np.inf if mantissa == 0 else np.nan
        elif last and mantissa == (1 << mantissa_bits) - 1:
            value = np.nan
        values[code] = -value if code & 0x80 else value
    return values


_FP8 = {"f8e4m3fn": _decode_fp8(4, 3, False), "f8e5m2": _decode_fp8(5, 2, True)}


def _fp8_from_float32(values, kind):
    """Nearest of the 128 magnitudes; the next one beyond the largest finite stands for overflow."""
    table = _FP8[kind][:128]
    finite = int(np.isfinite(table).sum())
    step = float(table[finite - 1]) - float(table[finite - 2])
    magnitudes = np.append(table[:finite].astype(np.float64), float(table[finite - 1]) + step)
    size = np.abs(np.asarray(values, np.float64))
    above = np.clip(np.searchsorted(magnitudes, size), 1, finite)
    low, high = magnitudes[above - 1], magnitudes[above]
    middle = (low + high) / 2  # exact: neighbours of a type with few bits
    codes = np.where((size > middle) | ((size == middle) & (above % 2 == 0)), above, above - 1)
    overflow = 0x7C if kind == "f8e5m2" else 0x7F
    codes = np.where(codes >= finite, overflow, codes)
    codes = np.where(np.isnan(size), 0x7F, codes)
    return (codes | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def to_float32(stored, kind):
    """float32 values of an array that holds type `kind` ("bf16", "f8e4m3fn", "f16", ...)."""
    if kind == "bf16":
        return _bf16_to_float32(np.asarray(stored))
    if kind in _FP8:
        return _FP8[kind][stored]
    return np.asarray(stored).astype(np.float32)


def from_float32(values, kind):
    """The array that holds these values, rounded to type `kind`."""
    if kind == "bf16":
        return _bf16_from_float32(np.asarray(values, np.float32))
    if kind in _FP8:
        return _fp8_from_float32(np.asarray(values, np.float32), kind)
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(STORED[kind])
