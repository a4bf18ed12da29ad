"""Faults of any array of floats: copies of what an assertion was given, each with something in it that it should notice."""
import collections.abc
import sys

import numpy as np


def _rows(x):
    return x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)


def _zeros(x, m):
    return m.zeros_like(x)


def _garbage_row(x, m):
    """One row of the last axis is that of another one, its elements in reverse."""
    y = m.copy(x)
    rows = m.rows(y)
    rows[len(rows) // 2] = m.flip(rows[len(rows) // 2 - 1])
    return y


def _one_element(x, m):
    """The largest element is replaced by 0."""
    y = m.copy(x)
    flat = m.flat(y)
    flat[m.argmax_abs(flat)] = 0
    return y


def _scaled(x, m):
    return m.like(m.wide(x) * 0.72, x)


def _shifted(x, m):
    """The rows are those of their neighbours."""
    return m.roll_rows(x)


def _noise(x, m):
    """Random numbers of the same mean square."""
    return m.like(m.noise(x), x)


def _sign_of_a_head(x, m):
    """The sign is turned in one slice of the axis before the rows (heads of (B, H, L, D)), or in half of the elements."""
    y = m.copy(x)
    if y.ndim >= 3:
        axis = y.ndim - 3
        index = tuple(slice(None) for _ in range(axis)) + (y.shape[axis] // 2,)
        y[index] = -y[index]
    else:
        flat = m.flat(y)
        flat[len(flat) // 2:] = -flat[len(flat) // 2:]
    return y


FAULTS = {
    "all zero": _zeros,
    "random, same norm": _noise,
    "one head's sign": _sign_of_a_head,
    "rows shifted by one": _shifted,
    "times 0.72": _scaled,
    "one row garbage": _garbage_row,
    "one element 0": _one_element,
}


class _Numpy:
    zeros_like = staticmethod(np.zeros_like)
    copy = staticmethod(np.array)
    flip = staticmethod(lambda x: x[::-1].copy())
    rows = staticmethod(_rows)
    flat = staticmethod(lambda x: x.reshape(-1))
    wide = staticmethod(lambda x: np.asarray(x, np.float64))

    @staticmethod
    def like(y, x):
        return y.astype(x.dtype)

    @staticmethod
    def argmax_abs(flat):
        return int(np.argmax(np.abs(np.nan_to_num(np.asarray(flat, np.float64)))))

    @staticmethod
    def roll_rows(x):
        return np.roll(x, 1, axis=-2) if x.ndim > 1 else np.roll(x, 1)

    @staticmethod
    def noise(x):
        wide = np.nan_to_num(np.asarray(x, np.float64))
        return np.random.default_rng(1).standard_normal(x.shape) * np.sqrt(np.mean(wide * wide))

    @staticmethod
    def differs(y, x):
        return not np.array_equal(np.asarray(y, np.float64), np.asarray(x, np.float64), equal_nan=True)


class _Torch:
    def __init__(self, torch):
        self.torch = torch
        self.zeros_like = torch.zeros_like

    def copy(self, x):
        return x.clone(memory_format=self.torch.contiguous_format)

    def flip(self, x):
        return x.flip(0)

    rows = staticmethod(_rows)

    def flat(self, x):
        return x.reshape(-1)

    def wide(self, x):
        return x.double()

    def like(self, y, x):
        return y.to(x.dtype)

    def argmax_abs(self, flat):
        return int(self.torch.argmax(self.torch.nan_to_num(flat.double()).abs()))

    def roll_rows(self, x):
        return self.torch.roll(x, 1, dims=-2 if x.ndim > 1 else 0)

    def noise(self, x):
        wide = self.torch.nan_to_num(x.double())
        # A generator of its own: the test's random numbers stay what they were.
        generator = self.torch.Generator().manual_seed(1)
        noise = self.torch.randn(x.shape, generator=generator, dtype=self.torch.float64).to(x.device)
        return noise * wide.square().mean().sqrt()

    def differs(self, y, x):
        return not self.torch.equal(self.torch.nan_to_num(y.double()), self.torch.nan_to_num(x.double()))


def _library_of(x):
    """(operations, array of floats with an axis that they take, how to give such an array back as what x is); or a text:
    why x has no faults."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if x.layout != torch.strided or x.is_quantized or x.device.type == "meta":
            return "a sparse or quantized tensor, or one without elements in memory"
        if not (x.is_floating_point() or x.is_complex()):
            return f"elements of type {str(x.dtype).removeprefix('torch.')}"
        plain, shape = x.detach(), x.shape
        if x.is_complex():  # two floats beside each other
            plain = torch.view_as_real(plain).reshape(*shape[:-1], -1)
            return _Torch(torch), plain, lambda y: torch.view_as_complex(y.reshape(*shape, 2).contiguous())
        return _Torch(torch), plain if plain.ndim else plain.reshape(1), lambda y: y.reshape(shape)
    mx = sys.modules.get("mlx.core")
    if mx is not None and isinstance(x, mx.array):
        if not mx.issubdtype(x.dtype, mx.floating):
            return f"elements of type {str(x.dtype).removeprefix('mlx.core.')}"
        plain, shape = np.array(x.astype(mx.float32)), x.shape
        return (_Numpy, plain if plain.ndim else plain.reshape(1),
                lambda y: mx.array(np.ascontiguousarray(y)).reshape(shape).astype(x.dtype))
    if isinstance(x, float | complex) and not isinstance(x, np.generic):
        library, plain, back = _library_of(np.asarray(x))
        return library, plain, lambda y: back(y).item()
    if isinstance(x, np.ndarray | np.generic):
        if x.dtype.kind == "c":
            plain, shape = np.ascontiguousarray(x), x.shape
            wide = plain.reshape(shape or (1,)).view(plain.real.dtype)
            return _Numpy, wide, lambda y: np.ascontiguousarray(y).view(plain.dtype).reshape(shape)
        if x.dtype.kind == "f" or x.dtype.name == "bfloat16":
            return _Numpy, x if x.ndim else np.asarray(x).reshape(1), lambda y: y.reshape(x.shape)
        return f"elements of type {x.dtype.name}"
    return f"a {type(x).__name__}"


def leaves(x):
    """(leaf, how to give a copy of x with another one in its place) of what torch.testing.assert_close takes apart."""
    if isinstance(x, collections.abc.Mapping):
        for key, value in x.items():
            for leaf, back in leaves(value):
                yield leaf, lambda y, key=key, back=back: {**x, key: back(y)}
    elif isinstance(x, collections.abc.Sequence) and not isinstance(x, str | bytes):
        for i, value in enumerate(x):
            for leaf, back in leaves(value):
                kind = tuple if isinstance(x, tuple) else list
                yield leaf, lambda y, i=i, back=back, kind=kind: kind([*x[:i], back(y), *x[i + 1:]])
    else:
        yield x, lambda y: y


def reason_against(x):
    """Why with_faults has nothing for x."""
    reasons = [found for leaf, _ in leaves(x) if isinstance(found := _library_of(leaf), str)]
    return reasons[0] if reasons else "values that no fault would change"


def with_faults(x):
    """(name, copy of x with the fault) of every fault that changes the array; of a sequence or mapping of arrays, with
    the fault in each of them in turn; nothing for what is no array of floats."""
    for leaf, put in leaves(x):
        found = _library_of(leaf)
        if isinstance(found, str):
            continue
        library, plain, back = found
        if not plain.size if isinstance(plain, np.ndarray) else not plain.numel():
            continue
        for name, fault in FAULTS.items():
            made = fault(library.copy(plain), library)
            if library.differs(made, plain):
                yield name, put(back(made))
