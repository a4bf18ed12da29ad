"""Attention in Triton, as a kernel of one's own would be written, and twelve ways to get it wrong.

Online softmax over tiles of 64 keys in f32, scores in log2 units, weights rounded to the type of V,
one division at the end; grouped queries; causal masks aligned to the bottom right.
"""

import math

import torch
import triton
import triton.language as tl

# Said of the kernel below: what Triton's flex_attention says of itself, whose steps are the same.
PLAN = "torch_flex_attention"

FAULTS = [
    "causal off by one", "causal ignored", "last tile dropped", "tail of K not masked", "wrong head of K",
    "scale missing", "scale by 1 / D", "no rescale of the sum", "no rescale of the output", "max not subtracted twice",
    "V one row late", "weights in 8 bits",
]
NUMBER = {name: number for number, name in enumerate(FAULTS, 1)}


@triton.jit
def _kernel(Q, K, V, O, scale, hq, group, l, t, D: tl.constexpr, CAUSAL: tl.constexpr, M: tl.constexpr,
            N: tl.constexpr, FAULT: tl.constexpr):
    tile, head = tl.program_id(0), tl.program_id(1)
    kv = head // group
    if FAULT == 5:
        # Heads of a batch row are taken in turns, not in groups.
        kv = (head // hq) * (hq // group) + (head % hq) % (hq // group)
    rows = tile * M + tl.arange(0, M)
    lanes = tl.arange(0, D)
    q = tl.load(Q + (head.to(tl.int64) * l + rows[:, None]) * D + lanes[None, :], mask=rows[:, None] < l, other=0.0)
    best = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    end = t
    if FAULT == 3:
        end = t - 1 - (t - 1) % N
    for start in range(0, end, N):
        keys = start + tl.arange(0, N)
        there = keys < t
        place = (kv.to(tl.int64) * t + keys[:, None]) * D + lanes[None, :]
        k = tl.load(K + place, mask=there[:, None], other=0.0)
        score = tl.dot(q, tl.trans(k)) * scale * 1.44269504
        if FAULT != 4:
            score = tl.where(there[None, :], score, float("-inf"))
        if CAUSAL:
            last = rows[:, None] + (t - l)
            if FAULT == 1:
                last += 1
            if FAULT != 2:
                score = tl.where(keys[None, :] <= last, score, float("-inf"))
        new = tl.maximum(best, tl.max(score, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        weight = tl.exp2(score - safe[:, None])
        shrink = tl.exp2(best - safe)
        if FAULT == 10:
            # The old maximum stays in the weights of the tile that raises it.
            weight = tl.exp2(score - tl.where(best == float("-inf"), safe, best)[:, None])
        if FAULT == 8:
            total = total + tl.sum(weight, 1)
        else:
            total = total * shrink + tl.sum(weight, 1)
        if FAULT != 9:
            acc = acc * shrink[:, None]
        if FAULT == 11:
            place = (kv.to(tl.int64) * t + tl.maximum(keys - 1, 0)[:, None]) * D + lanes[None, :]
        v = tl.load(V + place, mask=there[:, None], other=0.0)
        if FAULT == 12:
            weight = tl.floor(weight * 255 + 0.5) / 255
        acc = tl.dot(weight.to(v.dtype), v, acc)
        best = new
    out = acc / tl.where(total == 0, 1.0, total)[:, None]
    place = (head.to(tl.int64) * l + rows[:, None]) * D + lanes[None, :]
    tl.store(O + place, out.to(O.dtype.element_ty), mask=rows[:, None] < l)


def attention(q, k, v, causal, fault=""):
    """q (B, Hq, L, D), k and v (B, Hkv, T, D), contiguous, in f16 or bf16; D a power of two from 16."""
    b, hq, l, d = q.shape
    hkv, t = k.shape[1:3]
    number = NUMBER[fault] if fault else 0
    scale = {6: 1.0, 7: 1 / d}.get(number, 1 / math.sqrt(d))
    out = torch.empty_like(q)
    m, n = 64, 64
    _kernel[(triton.cdiv(l, m), b * hq)](q, k, v, out, scale, hq, hq // hkv, l, t, d, causal, m, n, number)
    return out
