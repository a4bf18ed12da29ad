"""Arrays of any library as (an object with a buffer, the name of the type of its elements), and back.

Nothing is copied that lies in the host's memory: a type that the buffer protocol cannot name (bf16, fp8) is viewed as
the integers of its size, with its name beside it.
"""
import sys

import numpy as np

from ._errors import Error

__tracebackhide__ = True  # of pytest: arrays are shown as the test has them

# Types whose elements numpy itself has; the others are known by name alone.
_NUMPY_TYPES = {name: np.dtype(name) for name in (
    "float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")}
_VIEWED_BYTES = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1, "float4_e2m1fn": 1}
SHORT_NAMES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn",
               "f8e5m2": "float8_e5m2"}


def _refuse(name, why):
    raise Error(f"array '{name}': {why}", "missing data", f"array '{name}'")


def _of_numpy(x, name):
    dtype = x.dtype
    if dtype.name in _VIEWED_BYTES:
        return x.view(np.dtype(f"u{dtype.itemsize}")), dtype.name
    if dtype.name not in _NUMPY_TYPES:
        _refuse(name, f"elements of type {dtype} are not understood")
    if not dtype.isnative:
        x = x.astype(_NUMPY_TYPES[dtype.name])
    return x, dtype.name


def _of_torch(x, name, torch):
    try:
        return _of_dense(x, name, torch)
    except Error:
        raise
    except Exception as error:  # FakeTensor, what vmap wraps, a subclass
        _refuse(name, f"a {type(x).__name__} without elements in memory: {error}")


def _of_dense(x, name, torch):
    if x.is_quantized:
        _refuse(name, "a quantized tensor: give dequantize() of it, or its int_repr() as the codes of a format")
    if x.layout != torch.strided or getattr(x, "is_nested", False):
        _refuse(name, f"a tensor of layout {x.layout} has no strides; give it dense")
    x = x.detach()
    if x.device.type != "cpu":
        if x.device.type == "meta":
            _refuse(name, "a tensor of the device 'meta' has no elements")
        x = x.cpu()
    x = x.resolve_conj().resolve_neg()
    kind = str(x.dtype).removeprefix("torch.")
    if kind in _VIEWED_BYTES:
        return x.view(torch.int16 if _VIEWED_BYTES[kind] == 2 else torch.uint8).numpy(), kind
    if kind not in _NUMPY_TYPES:
        _refuse(name, f"elements of type {x.dtype} are not understood")
    return x.numpy(), kind


def _of_mlx(x, name, mx):
    kind = {"bool_": "bool"}.get(str(x.dtype).removeprefix("mlx.core."), str(x.dtype).removeprefix("mlx.core."))
    mx.eval(x)
    if kind in _VIEWED_BYTES:
        return np.array(x.view(mx.uint16), copy=False), kind
    if kind not in _NUMPY_TYPES:
        _refuse(name, f"elements of type {x.dtype} are not understood")
    return np.array(x, copy=False), kind


def of(x, name):
    """(object with a buffer, type). Errors: kvcheck.Error for what is no array of numbers."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _of_torch(x, name, torch)
    mx = sys.modules.get("mlx.core")
    if mx is not None and isinstance(x, mx.array):
        return _of_mlx(x, name, mx)
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        _refuse(name, "elements of a masked array are masked: give filled() of it, and the mask as an argument")
    if isinstance(x, np.ndarray | np.generic):
        return _of_numpy(np.asarray(x), name)
    if isinstance(x, str | bytes | dict):
        _refuse(name, f"a {type(x).__name__} is no array")
    try:
        if hasattr(x, "__cuda_array_interface__") and hasattr(x, "get"):
            x = x.get()  # cupy
        elif hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
            x = np.from_dlpack(x)
        made = np.asarray(x)
    except Error:
        raise
    except Exception as error:  # whatever an object of unknown origin does when it is asked
        _refuse(name, f"a {type(x).__name__} is no array: {error}")
    return _of_numpy(made, name)


def held(arrays):
    """The argument of _core: those of a dict that are not None."""
    return {name: of(x, name) for name, x in arrays.items() if x is not None}


def bytes_of(arrays):
    return sum(x.nbytes for x, _ in arrays.values())


def dtype_named(kind):
    """The numpy type of a name: of bf16 and fp8 that of ml_dtypes, where it is installed, else the integers that hold
    their bits."""
    kind = SHORT_NAMES.get(kind, kind)
    if kind in _NUMPY_TYPES:
        return _NUMPY_TYPES[kind]
    try:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, kind))
    except (ImportError, AttributeError):
        return np.dtype(f"u{_VIEWED_BYTES[kind]}")


def widened(held, kind):
    """The values of (object with a buffer, type) in f64. Errors: kvcheck.Error for fp8 where ml_dtypes is not installed."""
    data = np.asarray(held)
    if kind == "bfloat16":  # the upper half of an f32
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    own = dtype_named(kind)
    if kind in _VIEWED_BYTES and own.kind == "u":
        raise Error(f"values of type {kind} need ml_dtypes: pip install kvcheck[types]", "unsupported", kind)
    return data.view(own).astype(np.float64)


def type_named(dtype):
    """The name of a type: "f16", "float16", a dtype of numpy, torch or mlx."""
    try:
        text = dtype if isinstance(dtype, str) else str(np.dtype(dtype).name)
    except TypeError:
        text = str(dtype).rsplit(".", 1)[-1]
    return SHORT_NAMES.get(text, text)


def as_type(tensor, kind):
    """What _core gives, its values rounded once to another type of floats. Errors: kvcheck.Error for bf16 and fp8 where
    ml_dtypes is not installed."""
    data, own, shape = tensor
    target = dtype_named(kind)
    if target.kind in "ui":
        raise Error(f"values of type {kind} need ml_dtypes: pip install kvcheck[types]", "unsupported", kind)
    size = data.size // max(int(np.prod(shape)), 1)
    with np.errstate(over="ignore"):
        values = widened(data.view(f"u{size}") if size else data, own).astype(target)
    return values.view(np.uint8), kind, shape


def back(tensor, library="numpy", shape=None):
    """An array from what _core gives: (bytes, type, shape). library: "numpy" or "torch"."""
    data, kind, own_shape = tensor
    shape = tuple(own_shape if shape is None else shape)
    if library == "torch":
        import torch
        whole = torch.from_numpy(data)
        return whole.view(torch.bool if kind == "bool" else getattr(torch, kind)).reshape(shape)
    if library != "numpy":
        raise Error(f"library '{library}': numpy or torch", "usage", "library")
    return data.view(dtype_named(kind)).reshape(shape)
