"""kvcheck judges attention kernels, KV caches and storage formats by bounds that follow from the data.

    from kvcheck.testing import assert_attention_close
    assert_attention_close(out, q, k, v, causal=True, plan="flash_attention_3")

Arrays are those of numpy, torch, mlx, jax, cupy and whatever speaks the buffer protocol or DLPack, in f64, f32, f16,
bf16 and fp8. CPU arrays are read where they lie, on their strides; arrays of a GPU are copied once to the host. The GIL
is released while a question is judged; `threads` says how many threads work on it, on which no verdict depends (default:
the environment variable KVCHECK_THREADS, else one for each processor that the process may use, at most 16, shared by the
workers of pytest-xdist). The threads stay for the next call; a process may fork between calls, and its children start theirs.

What an implementation did wrong is in the Verdict; a question that cannot be put raises kvcheck.Error (a ValueError).
"""
import importlib

_PLACES = {
    "Error": "_errors",
    "KvcheckWarning": "_errors",
    "Verdict": "_core",
    "judge_attention": "_attention",
    "judge_case": "_attention",
    "judge_arrays": "_attention",
    "reference_attention": "_attention",
    "encode": "formats",
    "decode": "formats",
    "plans": "_attention",
}
_MODULES = ("audit", "cases", "formats", "testing")
__all__ = [*_PLACES, *_MODULES]


def __getattr__(name):
    # Nothing is loaded before it is asked for: the pytest plugin of a suite that does not use kvcheck costs nothing.
    if name in _MODULES:
        return importlib.import_module(f"kvcheck.{name}")
    if name == "__version__":
        from importlib.metadata import version
        return version("kvcheck")
    if name not in _PLACES:
        raise AttributeError(f"module 'kvcheck' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"kvcheck.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__])
