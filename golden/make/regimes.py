"""Data of the golden files: storage types in numpy, attention operands and codec rows by regime.

Every array is drawn from numpy's PCG64 under a seed made of the case's name, so a case keeps its data when others are
added or dropped. The draws are those of the pinned numpy; the arrays are stored in the files, so nothing depends on
drawing them again.
"""
import zlib

import numpy as np

import kvcheck_golden as kg

LONG_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


# ------------------------------------------------------------------------------- storage types


def to_storage(x, kind):
    """Rounds to nearest even: float32 and float16 arrays, bfloat16 as uint16 bits. NaN stays NaN."""
    x = np.asarray(x, np.float32)
    if kind == "f32":
        return x
    if kind == "f16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16)
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(x), 0x7FC0, nearest).astype(np.uint16).reshape(x.shape)


def widen(stored, kind):
    """The exact values of a stored array, float64."""
    if kind == "bf16":
        bits = np.ascontiguousarray(stored).astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).astype(np.float64).reshape(stored.shape)
    return stored.astype(np.float64)


def rounded(x, kind):
    """What is left of values after they were stored, float64."""
    return widen(to_storage(x, kind), kind)


def typed(stored, kind, kv_format=None):
    """A stored array as the golden writer takes it."""
    return kg.Typed(stored, LONG_NAMES[kind], kv_format=kv_format)


def generator(name):
    return np.random.default_rng(zlib.crc32(name.encode("utf-8")))


# ---------------------------------------------------------------------------------- attention

# Why outputs over constant_v are MISTRUSTED.
BLIND = "every value row is the same: losing any key, or all but one, would not show"

ATTENTION_REGIMES = ("gauss", "outlier", "sink_token", "same_sign_v", "huge_scores", "constant_v", "equal_keys")


def attention_operands(regime, rng, batch, query_heads, kv_heads, query_len, kv_len, k_dim, v_dim):
    """q (B,Hq,L,Dk), k (B,Hkv,T,Dk), v (B,Hkv,T,Dv), not rounded yet.

    gauss        N(0,1)
    outlier      one channel of q times 30, the same channel of k times 5
    sink_token   the first key draws most of the weight, and its value is small
    same_sign_v  v in [0.1, ...): no cancellation hides an error
    huge_scores  q times 60: the softmax selects one key
    constant_v   every value row the same
    equal_keys   every key the same: uniform weights
    """
    q = rng.standard_normal((batch, query_heads, query_len, k_dim))
    k = rng.standard_normal((batch, kv_heads, kv_len, k_dim))
    v = rng.standard_normal((batch, kv_heads, kv_len, v_dim))
    if regime == "outlier":
        q[..., 3] *= 30
        k[..., 3] *= 5
    elif regime == "sink_token":
        k[:, :, 0] = 1.5 * q[:, :: query_heads // kv_heads, 0]
        v[:, :, 0] *= 0.01
    elif regime == "same_sign_v":
        v = np.abs(v) + 0.1
    elif regime == "huge_scores":
        q *= 60
    elif regime == "constant_v":
        v[:] = v[:, :, :1]
    elif regime == "equal_keys":
        k[:] = k[:, :, :1]
    elif regime != "gauss":
        raise ValueError(f"unknown regime {regime}")
    return q, k, v


# -------------------------------------------------------------------------------------- codecs

# Row by row: what the row is for.
CODEC_ROWS = ("gauss", "outlier", "constant", "all_negative", "zeros", "tiny", "ties", "subnormal", "offset",
              "f16_range")


def codec_rows(kind, bits, head_dim, rng, families=CODEC_ROWS):
    """Rows (len(families), head_dim), stored as `kind`.

    ties lie halfway between two codes; tiny lies below the encoder's absolute floor of 1e-7; f16_range spans
    [-60000, 60000], where products of code and scale leave float16.
    """
    gauss = rng.standard_normal((len(families), head_dim))
    levels = 2**bits - 1
    smallest = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}[kind]
    rows = []
    for row, family in zip(gauss, families):
        if family == "outlier":
            row = row.copy()
            row[5::32] *= 50
        elif family == "constant":
            row = np.full(head_dim, 0.7)
        elif family == "all_negative":
            row = -np.abs(row) - 0.25
        elif family == "zeros":
            row = np.zeros(head_dim)
        elif family == "tiny":
            row = row * 1e-8
        elif family == "ties":
            # Both ends of the grid in every 32 channels; between them halves of a step.
            row = np.minimum(rng.integers(0, levels, head_dim) + 0.5, levels)
            row[0::32], row[1::32] = 0, levels
            row = row * 2.0**-3
        elif family == "subnormal":
            row = rng.integers(-200, 200, head_dim) * smallest
            if kind == "bf16":
                row = rng.integers(-100, 100, head_dim) * smallest
        elif family == "offset":
            row = row + 1000
        elif family == "f16_range":
            row = rng.permutation(np.linspace(-60000, 60000, head_dim))
        elif family == "nan":
            row = row.copy()
            row[7] = np.nan
        elif family == "infinity":
            row = row.copy()
            row[40] = np.inf
        elif family == "range_overflow":
            row = row.copy()
            largest = 65504.0 if kind == "f16" else 3.3e38
            row[3], row[9] = largest, -largest
        elif family != "gauss":
            raise ValueError(f"unknown family {family}")
        rows.append(row)
    return to_storage(np.array(rows), kind)
