from os import PathLike
from typing import Any, Literal, Mapping, Sequence

from . import audit as audit, cases as cases, formats as formats, testing as testing
from ._core import Verdict as Verdict
from ._errors import Error as Error, KvcheckWarning as KvcheckWarning
from .formats import decode as decode, encode as encode

import numpy as np

# Of numpy, torch, mlx, jax, cupy, the buffer protocol or DLPack.
ArrayLike = Any
# Tokens, the query's own included; or (left, right) as FlashAttention's window_size, -1: no limit.
Window = int | tuple[int, int]
Causal = bool | Literal["bottom_right", "top_left"]

__version__: str

def judge_attention(
    out: ArrayLike, q: ArrayLike, k: ArrayLike, v: ArrayLike, *, mask: ArrayLike | str | None = None,
    causal: Causal = False, window: Window | None = None, scale: float | None = None, softcap: float | None = None,
    sinks: ArrayLike | None = None, alibi_slopes: ArrayLike | None = None, lse: ArrayLike | None = None,
    lse_base2: bool = False, k_scale: ArrayLike | float | None = None, v_scale: ArrayLike | float | None = None,
    layout: str = "bhsd", lse_layout: str | None = None, cu_seqlens_q: ArrayLike | None = None,
    cu_seqlens_k: ArrayLike | None = None, cu_seqlens_q_padded: ArrayLike | None = None,
    cu_seqlens_k_padded: ArrayLike | None = None, block_table: ArrayLike | None = None,
    block_starts: ArrayLike | None = None, kv_lens: ArrayLike | None = None,
    plan: str = ..., profile: str = "", strict: bool = False, rule: str = "statistics",
    must_see: str | Sequence[str] | None = None, rows: int | None = None, seed: int = 1,
    threads: int | None = None, device: Literal["cpu", "torch"] | None = None, save: str | PathLike[str] | None = None
) -> Verdict: ...
def reference_attention(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, *, mask: ArrayLike | str | None = None, causal: Causal = False,
    window: Window | None = None, scale: float | None = None, softcap: float | None = None, sinks: ArrayLike | None = None,
    alibi_slopes: ArrayLike | None = None, k_scale: ArrayLike | float | None = None,
    v_scale: ArrayLike | float | None = None, layout: str = "bhsd", lse: bool = False, lse_base2: bool = False,
    dtype: str | None = None, plan: str = ..., profile: str = "", threads: int | None = None
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]: ...
def judge_case(
    case: str, inputs: Mapping[str, ArrayLike] | None, outputs: Mapping[str, ArrayLike], *, plan: str = "stranger",
    profile: str = "", strict: bool = False, rows: int | None = None, seed: int = 1, threads: int | None = None,
    save: str | PathLike[str] | None = None) -> Verdict: ...
def judge_arrays(want: ArrayLike, got: ArrayLike, rule: str = "exact", *, strict: bool = False,
                 threads: int | None = None, save: str | PathLike[str] | None = None) -> Verdict: ...
def plans() -> dict[str, str]: ...
