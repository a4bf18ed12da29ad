"""Attention in numpy, which the tests judge and spoil; arrays (B, H, tokens, D)."""
import numpy as np


def attention(q, k, v, *, mask=None, causal=False, window=None, scale=None, softcap=None, sinks=None, lse=False):
    """In float64, rounded once to the type of q. mask: bool or additive, of any shape that broadcasts with scores."""
    kind = q.dtype
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("bhld,bhtd->bhlt", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    queries, keys = scores.shape[-2:]
    at = np.arange(queries)[:, None] + keys - queries
    seen = np.ones((queries, keys), bool)
    if causal:
        seen &= np.arange(keys) <= at
    if window is not None:
        seen &= np.arange(keys) > at - window
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        scores = scores + np.asarray(mask, np.float64)
    scores = np.where(seen, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        highest = np.maximum(highest, sinks[None, :, None, None])
    highest = np.where(np.isfinite(highest), highest, 0)
    weights = np.exp(scores - highest)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[None, :, None, None] - highest)
    out = np.einsum("bhlt,bhtd->bhld", weights, v) / np.where(total > 0, total, 1)
    if lse:
        return out.astype(kind), (np.log(total) + highest)[..., 0].astype(np.float32)
    return out.astype(kind)


def tensors(b=2, hq=4, hkv=2, l=9, t=17, d=16, dv=None, kind=np.float32, seed=0):
    random = np.random.default_rng(seed)
    shapes = ((b, hq, l, d), (b, hkv, t, d), (b, hkv, t, dv or d))
    return tuple(random.standard_normal(shape).astype(kind) for shape in shapes)
