from os import PathLike
from typing import Any, Callable, Literal, Sequence

from . import ArrayLike, Causal, Verdict, Window

listeners: list[Callable[[str, Verdict], None]]
# Those of the package kvcheck_adapter.
Adapter: Any
Refused: type[Exception]
Unsupported: type[Exception]

def assert_attention_close(
    out: ArrayLike, q: ArrayLike, k: ArrayLike, v: ArrayLike, *, mask: ArrayLike | str | None = None,
    causal: Causal = False, window: Window | None = None, scale: float | None = None, softcap: float | None = None,
    sinks: ArrayLike | None = None, lse: ArrayLike | None = None, k_scale: ArrayLike | float | None = None,
    v_scale: ArrayLike | float | None = None, layout: str = "bhsd", plan: str = ..., strict: bool = False,
    profile: str = "", alibi_slopes: ArrayLike | None = None, lse_base2: bool = False, lse_layout: str | None = None,
    cu_seqlens_q: ArrayLike | None = None, cu_seqlens_k: ArrayLike | None = None,
    cu_seqlens_q_padded: ArrayLike | None = None, cu_seqlens_k_padded: ArrayLike | None = None, block_table: ArrayLike | None = None,
    block_starts: ArrayLike | None = None, kv_lens: ArrayLike | None = None, rule: str = "statistics",
    must_see: str | Sequence[str] | None = None, rows: int | None = None, seed: int = 1, threads: int | None = None,
    device: Literal["cpu", "torch"] | None = None, msg: str | Callable[[str], str] | None = None) -> Verdict: ...
def assert_codec_close(codes: ArrayLike | dict[str, ArrayLike], x: ArrayLike, *, format: str, exact: bool = False,
                       profile: str = "", strict: bool = False, threads: int | None = None,
                       msg: str | Callable[[str], str] | None = None) -> Verdict: ...
def assert_close(actual: ArrayLike, expected: ArrayLike, *, rule: str | None = None, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_dtype: bool = True, strict: bool = False,
                 msg: str | Callable[[str], str] | None = None, threads: int | None = None, **ignored: Any) -> Verdict: ...
def assert_cache_correct(adapter: type | str | PathLike[str], *arguments: str, cases: int = 2000, seed: int = 1,
                         layouts: Sequence[str] = (), formats: Sequence[str] = (), python: str = ...,
                         timeout: float | None = None) -> str: ...
