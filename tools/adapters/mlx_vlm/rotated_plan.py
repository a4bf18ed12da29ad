"""The plan of attention in the rotated domain, of one query a row: what is declared of an answer.

The library rotates q instead of reading K back, sums products with centroids, sums weighted centroids of V, and rotates the result
back. A plan of kvcheck has sums over channels and over keys alone, whose error it bounds by their own terms, so the depth that is
declared for them is the least one whose bound covers what the rotations add, computed from the data of this very answer. With u the
unit roundoff of f32, d the rotation's dimension, L = log2 d, c centroids, N norms, q' = Pi q, gamma_k = k u / (1 - k u):

    score     N (gamma_{L+2} sum|c| sum|q| / sqrt d  +  gamma_d sum|q'||c|)   <=  gamma_H sum|q||k|, H the declared depth of qk
    output    (gamma_{T+3} + gamma_{L+2}) sum_j (sum_t w N |c_j|) / sqrt d    <=  gamma_H sum_t w |v|, H that of pv, in each channel

(L sums, the product with 1/sqrt d and its own rounding; a sum over d channels, or T keys of three factors, in any order.) The product
of a score with N is one rounding outside the sum. A codec of half a bit is two rotations, whose scores add up in one more rounding.
"""
import math

import numpy as np

from freedom import parts_of
from kvcheck_adapter import Unsupported
from kvcheck_adapter.channel import unpacked
from kvcheck_adapter.mlx_arrays import is_power_of_two
from kvcheck_adapter.storage import to_float32
from kvcheck_adapter.turboquant import hadamard, parameters

UNIT = 2.0**-24


def gamma(k):
    return k * UNIT / (1 - k * UNIT)


def decoded(fmt, codes, norms):
    """Of vectors (H, T): (|centroids| times norm, float64 (H, T, d) in the order of the parts; the vectors themselves; signs)."""
    sizes, values = [], np.empty((*codes.shape[:-1], sum(len(channels) for _, channels in parts_of(fmt.text))))
    at = 0
    for index, (part, channels) in enumerate(parts_of(fmt.text)):
        width = len(channels) * part.bits // 32
        centroids, signs = parameters(part.text)
        picked = centroids[unpacked(codes[..., at:at + width], part.bits)].astype(np.float64)
        at += width
        norm = norms[..., index:index + 1].astype(np.float64)
        sizes.append((np.abs(picked) * norm, channels, signs))
        values[..., channels] = hadamard(picked) / math.sqrt(len(channels)) * signs * norm
    return sizes, values


def depth(needed, mass):
    """The least H with gamma_H mass >= needed everywhere, for masses that are not 0; one more for this arithmetic's own rounding."""
    ratio = (needed / np.where(mass > 0, mass, np.inf)).max(initial=0.0)
    return max(1, math.ceil(ratio / UNIT) + 1)


def plan(k_format, v_format, k, v, q, kind, scale, visible):
    """k, v: (codes, norms) as stored, (B, Hkv, T, ...); q: (B, Hq, 1, d) as stored in type `kind`; visible: (1, T), or None."""
    queries = to_float32(q, kind).astype(np.float64)[:, :, 0]
    per_head = queries.shape[1] // k[0].shape[1]
    k_parts, keys = decoded(k_format, *k)
    v_parts, values = decoded(v_format, *v)
    keys = np.repeat(keys, per_head, 1)
    score, mass = np.zeros(keys.shape[:-1]), np.abs(keys * queries[:, :, None]).sum(-1)
    for sizes, channels, signs in k_parts:
        d, sizes = len(channels), np.repeat(sizes, per_head, 1)
        part = queries[..., channels]
        turned = np.abs(hadamard(part * signs) / math.sqrt(d))
        score += gamma(math.log2(d) + 2) * sizes.sum(-1) * np.abs(part).sum(-1)[..., None] / math.sqrt(d)
        score += gamma(d) * (sizes * turned[:, :, None]).sum(-1)
    if len(k_parts) > 1:
        score += gamma(1) * sum((np.repeat(sizes, per_head, 1) * np.abs(hadamard(queries[..., channels] * signs) / math.sqrt(
            len(channels)))[:, :, None]).sum(-1) for sizes, channels, signs in k_parts)
    tokens = keys.shape[2]
    scores = scale * (keys * queries[:, :, None]).sum(-1)
    if visible is not None and visible.any():  # where nothing is, all keys have one weight
        scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (weights / weights.sum(-1, keepdims=True))[..., None]
    output = np.empty(queries.shape[:-1] + values.shape[-1:])
    for sizes, channels, _ in v_parts:
        d, sizes = len(channels), np.repeat(sizes, per_head, 1)
        output[..., channels] = ((gamma(tokens + 3) + gamma(math.log2(d) + 2)) * (weights * sizes).sum(-2).sum(-1) / math.sqrt(d))[..., None]
    heights = depth(score, mass), depth(output, (weights * np.abs(np.repeat(values, per_head, 1))).sum(-2))
    if max(heights) * UNIT > 0.5:
        raise Unsupported("nothing is left of some channel beside what its rotation may lose")
    # q is multiplied by the scale in its own type, as which the scale was rounded before; then the product with N.
    exact, low = is_power_of_two(scale), kind != "f32"
    prescale = f"{kind}:2" if low and not exact else "none"
    roundings = 1 if low or exact else 3
    return (f"base=stranger qk=f32:depth:{heights[0]} pv=f32:depth:{heights[1]} prescale={prescale} scale_roundings={roundings} scores=f32 p=f32 "
            f"p_normalised={'yes' if visible is None else 'no'} block=all merge=none")
