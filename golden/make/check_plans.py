"""Checks the arithmetic plans written down in plans_of_libraries.md against the libraries themselves.

For every plan it draws problems in several regimes, runs the library, evaluates attention and the
deterministic bound B in float64, and prints per plan the largest err/B (a plan is refuted by a value
above 1) and the median of B/A, A = sum_j p_j |v_jc| (how much a PASS under this plan says).

Usage: python check_plans.py        (runs every library that can be imported: mlx and mlx-lm, torch)
Exit status: 0 when no plan is refuted, 1 otherwise.
"""
import dataclasses
import itertools
import math
import sys

import numpy as np

F32 = 2.0**-24
VECTOR = 8  # floats in one vector of the CPU capability that PyTorch uses: 16 with AVX-512, else 8


@dataclasses.dataclass(frozen=True)
class Storage:
    """A storage type: unit roundoff, half the smallest subnormal, largest finite, overflow threshold."""

    name: str
    u: float
    eta: float
    largest: float
    precision: int
    min_exponent: int


STORAGE = {
    "f32": Storage("f32", 2.0**-24, 2.0**-150, float(np.finfo(np.float32).max), 24, -126),
    "f16": Storage("f16", 2.0**-11, 2.0**-25, 65504.0, 11, -14),
    "bf16": Storage("bf16", 2.0**-8, 2.0**-134, float.fromhex("0x1.fep127"), 8, -126),
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """One arithmetic plan for a problem of head size d and n keys (symbols of the derivation)."""

    u_qk: float = F32
    h_qk: int = 0
    u_pv: float = F32
    h_pv: int = 0
    u_l: float = F32
    h_l: int = 0
    u_a: float = F32
    c_s: int = 0
    u_q: float = 0.0  # relative error of the q that enters the dot product
    eta_q: float = 0.0  # absolute error of the same (it may be subnormal in the storage type)
    u_s: float = 0.0  # scores stored before the bias: relative and absolute
    eta_s: float = 0.0
    u_b: float = F32  # the addition of the bias
    c_m: int = 1
    u_e: float = 2.0**-23
    eta_e: float = 2.0**-126
    rescales: int = 0
    u_p: float = 0.0
    eta_p: float = 0.0
    p_normalised: bool = False
    p_cut: bool = False  # 1 is representable and P is rounded to nearest without normalisation
    c_n: int = 0
    c_d: int = 2
    out: str = "f32"
    out_rounds: bool = False
    eta_o: float = 0.0
    lam: float = 2.0**-149
    score_range: float = math.inf


def gamma(k, u):
    return k * u / (1 - k * u) if k * u < 1 else math.inf


def half_spacing(y, storage):
    exponent = np.maximum(np.frexp(np.maximum(y, 1e-300))[1] - 1, storage.min_exponent)
    return np.ldexp(1.0, exponent - storage.precision)


def attention_and_bound(q, k, v, alpha, bias, visible, sink, plan):
    """Output, bound and A of one head: q (L, d), k (n, d), v (n, dv), bias and visible (L, n), all float64.

    Returns (o, B, A, overflow) where overflow marks rows whose stored scores may leave their type.
    """
    rows, (n, d), dv = q.shape[0], k.shape, v.shape[1]
    out = np.zeros((rows, dv))
    bound = np.zeros((rows, dv))
    absolute = np.zeros((rows, dv))
    overflow = np.zeros(rows, bool)
    p = plan
    for r in range(rows):
        keep = np.flatnonzero(visible[r])
        kk, vv, b = k[keep], v[keep], bias[r, keep]
        x = alpha * (kk @ q[r])
        size = abs(alpha) * (np.abs(kk) @ np.abs(q[r]))
        err = ((1 + p.u_q) * (1 + gamma(p.h_qk, p.u_qk)) * (1 + gamma(p.c_s, p.u_a)) - 1) * size
        err = err + p.eta_q * np.abs(kk).sum(1)
        err = err + p.lam * (1 + abs(alpha)) * (np.abs(q[r]).sum() + np.abs(kk).sum(1) + 2 * d + 2)
        err = (1 + p.u_s) * err + p.u_s * np.abs(x) + p.eta_s
        s = x + b
        has_bias = b != 0
        overflow[r] = np.any(np.abs(x) + err >= p.score_range) or np.any(np.abs(s) + err >= p.score_range)
        err = np.where(has_bias, (1 + p.u_b) * err + p.u_b * np.abs(s) + p.eta_s, err)
        if sink is not None:
            s, err = np.append(s, sink), np.append(err, 0.0)
            vv = np.vstack([vv, np.zeros(dv)])
        m = s.max()
        e = np.exp(s - m)
        weight = e / e.sum()
        m_plus = (s + err).max()
        w_arg = m_plus - s + err
        tau = err + gamma(p.c_m, p.u_a) * w_arg
        with np.errstate(over="ignore", invalid="ignore"):
            rho_p = np.exp(tau) * (1 + p.u_e) ** (1 + p.rescales) - 1
            rho_m = 1 - np.exp(-tau) * (1 - p.u_e) ** (1 + p.rescales)
            mass_p = np.where(weight > 0, weight * (1 + rho_p), 0.0)
            score_part = np.where(weight > 0, weight * rho_p, 0.0)
        t = min(float((weight * rho_m).sum()), 1.0)
        o = weight @ vv
        av = np.abs(vv)
        u_pj = np.zeros_like(s)
        if p.u_p:
            w = weight if p.p_normalised else e
            with np.errstate(over="ignore", divide="ignore"):
                u_pj = np.maximum(p.u_p, np.minimum(1.0, p.eta_p / w))
                if p.p_cut:
                    u_pj = np.minimum(u_pj, np.exp(w_arg + tau) * (1 + p.u_e) - 1 + p.u_e)
        out[r], absolute[r] = o, weight @ av
        if t == 1.0 or not np.isfinite(mass_p).all():
            bound[r] = math.inf  # the plan proves nothing about this row
            continue
        spread = np.abs(vv - o)
        c = np.minimum((score_part @ spread) / (1 - t), spread.max(0))
        x_sum = mass_p @ av
        y_sum = (mass_p * u_pj) @ av
        g = (1 + gamma(p.h_pv, p.u_pv)) * (1 + gamma(p.c_n + p.rescales, p.u_a)) - 1
        if p.p_normalised:
            g = (1 + g) * (1 + gamma(p.c_d, p.u_a)) - 1
        num = ((1 + g) * y_sum + g * x_sum) / (1 - t)
        dl = (1 + gamma(p.h_l, p.u_l)) * (1 + gamma(p.rescales, p.u_a)) - 1
        den = dl / (1 - dl) * (np.abs(o) + c + num) if dl < 1 else np.full(dv, math.inf)
        f = c + num + den
        if not p.p_normalised:
            f = f + gamma(p.c_d, p.u_a) * (np.abs(o) + f)
        big_v = av.max(0)
        f = f + 3 * (len(s) + p.rescales + 2) * (p.eta_e * (big_v + num) + p.lam * (1 + big_v + num)) / (
            (1 - t) * (1 - dl)
        )
        if p.out_rounds:
            y = np.abs(o) + f
            storage = STORAGE[p.out]
            f = f + np.minimum(storage.u * y, half_spacing(y, storage)) + p.eta_o
        bound[r] = f * (1 + 2.0**-40)
    return out, bound, absolute, overflow


def reference_plan(d, n):
    """float64 as evaluated above: any order of summation, fused or not."""
    u = 2.0**-53
    return Plan(u_qk=u, h_qk=d, u_pv=u, h_pv=n + 1, u_l=u, h_l=n, u_a=u, c_s=1, u_b=u, u_e=2.0**-52,
                eta_e=2.0**-1022, c_n=0, c_d=2, p_normalised=True, lam=2.0**-1022)


# ---------------------------------------------------------------------------------------- plans


def mlx_plan(kind, d, n, alpha, has_sink):
    """mx.fast.scaled_dot_product_attention on a CPU."""
    t = STORAGE[kind]
    keys = n + (1 if has_sink else 0)
    power_of_two = math.frexp(alpha)[0] == 0.5
    common = dict(h_qk=d - 1, h_pv=n - 1, h_l=keys - 1, c_m=3, u_e=2.0**-23, eta_e=2.0**-126,
                  p_normalised=True, c_d=2, out=kind)
    if kind == "f32":
        return Plan(c_s=1 if power_of_two else 3, c_n=1, **common)
    return Plan(c_s=0, c_n=0, u_q=0.0 if power_of_two else (1 + t.u) ** 2 - 1,
                eta_q=t.eta, u_s=t.u, eta_s=t.eta, u_b=t.u, u_p=t.u, eta_p=t.eta, out_rounds=True,
                eta_o=t.eta, score_range=t.largest, **common)


def mlx_lm_plan(kind, d, n, alpha, has_sink):
    """mlx_lm.models.base.quantized_scaled_dot_product_attention, judged against the decoded K and V."""
    t = STORAGE[kind]
    power_of_two = math.frexp(alpha)[0] == 0.5
    common = dict(h_l=n - 1, c_m=3, u_e=2.0**-23, eta_e=2.0**-126, p_normalised=True, c_d=2, out=kind)
    if kind == "f32":
        return Plan(h_qk=d - 1, h_pv=n - 1, c_s=1 if power_of_two else 3, c_n=1, **common)
    return Plan(u_qk=t.u, h_qk=d, u_pv=t.u, h_pv=n, c_s=0, c_n=0,
                u_q=0.0 if power_of_two else (1 + t.u) ** 2 - 1, eta_q=t.eta, u_b=t.u, eta_s=t.eta,
                u_p=t.u, eta_p=t.eta, lam=t.eta, score_range=t.largest, **common)


def torch_flash_plan(kind, d, n, alpha, has_sink):
    """The CPU flash kernel of scaled_dot_product_attention: blocks of 512 keys, vectors of VECTOR floats."""
    t = STORAGE[kind]
    block = min(n, 512)
    blocks = -(-n // 512)
    lanes = VECTOR if kind == "f32" else 2 * VECTOR
    tree = int(math.log2(VECTOR)) + (0 if kind == "f32" else 2)  # halves and the odd vector join first
    h_l = block // lanes + tree + VECTOR - 1 + blocks - 1
    common = dict(h_qk=d, h_pv=n, h_l=h_l, c_s=2, c_m=1, rescales=blocks - 1, c_n=0, c_d=2, out=kind)
    if kind == "f32":
        return Plan(u_e=2.0**-21, eta_e=2.0**-125, **common)
    common.update(h_qk=d - 1, h_pv=n - 1)
    flushed = kind == "bf16"
    return Plan(u_e=2.0**-13, eta_e=2.0**-126, u_p=t.u, eta_p=t.eta, p_cut=True, out_rounds=True,
                eta_o=2.0**-126 if flushed else t.eta, lam=2.0**-126 if flushed else 2.0**-149, **common)


def torch_math_plan(kind, d, n, alpha, has_sink):
    """The unfused path: float32 throughout, inputs converted, one rounding at the end."""
    t = STORAGE[kind]
    return Plan(h_qk=d, h_pv=n, h_l=n - 1, c_s=4, c_m=1, u_e=2.0**-21, eta_e=2.0**-125, p_normalised=True,
                c_d=2, out=kind, out_rounds=kind != "f32", eta_o=t.eta if kind != "f32" else 0.0)


# ------------------------------------------------------------------------------------- problems


def to_storage(x, kind):
    """Rounds to nearest even to the storage type, returned as float32 (exact)."""
    x = np.asarray(x, np.float32)
    if kind == "f16":
        return x.astype(np.float16).astype(np.float32)
    if kind == "bf16":
        bits = x.view(np.uint32)
        bits = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
        return (bits & np.uint32(0xFFFF0000)).view(np.float32)
    return x


REGIMES = ("gauss", "outlier q", "sink token", "same-sign V", "huge scores", "constant V")
SHAPES = (  # L, n, d, Hq, Hkv
    (1, 1, 64, 1, 1), (1, 17, 80, 2, 1), (1, 129, 128, 4, 1), (1, 512, 64, 8, 2), (1, 1100, 128, 8, 1),
    (16, 16, 64, 2, 2), (16, 33, 128, 8, 4), (16, 129, 80, 4, 2), (16, 600, 64, 8, 1), (96, 128, 64, 4, 4),
)
MASKS = ("none", "bool", "causal", "additive")


def draw(regime, shape, mask, kind, seed):
    rng = np.random.default_rng(seed)
    rows, n, d, hq, hkv = shape
    q = rng.standard_normal((hq, rows, d))
    k = rng.standard_normal((hkv, n, d))
    v = rng.standard_normal((hkv, n, d))
    if regime == "outlier q":
        q[..., 3] *= 30
        k[..., 3] *= 5
    elif regime == "sink token":
        k[:, 0] = q[:: hq // hkv, 0] * 1.5
        v[:, 0] *= 0.01
    elif regime == "same-sign V":
        v = np.abs(v) + 0.1
    elif regime == "huge scores":
        q *= 60
    elif regime == "constant V":
        v = np.broadcast_to(rng.standard_normal((1, 1, d)), v.shape)
    q, k, v = (to_storage(a, kind) for a in (q, k, v))
    visible = np.ones((rows, n), bool)
    bias = np.zeros((rows, n), np.float32)
    if mask == "bool":
        visible = rng.random((rows, n)) < 0.6
        visible[:, -1] = True
    elif mask == "causal":
        visible = np.arange(n)[None] <= np.arange(rows)[:, None] + (n - rows)
    elif mask == "additive":
        bias = to_storage(-0.3 * np.abs(np.arange(n)[None] - np.arange(rows)[:, None] - (n - rows)), kind)
    return q, k, v, bias, visible


class Tally:
    def __init__(self):
        self.worst, self.where, self.ratios, self.elements, self.skipped = 0.0, "", [], 0, 0
        self.vacuous = 0

    def add(self, got, q, k, v, alpha, bias, visible, sinks, make_plan, kind, label):
        hq, hkv = q.shape[0], k.shape[0]
        n, d = k.shape[1], k.shape[2]
        for head in range(hq):
            kv = head // (hq // hkv)
            sink = None if sinks is None else float(sinks[head])
            args = [a.astype(np.float64) for a in (q[head], k[kv], v[kv])]
            args += [alpha, bias.astype(np.float64), visible, sink]
            o, b, a, overflow = attention_and_bound(*args, make_plan(kind, d, n, alpha, sink is not None))
            b = b + attention_and_bound(*args, reference_plan(d, n + 1))[1]
            vacuous = ~np.isfinite(b).all(1) & ~overflow
            self.vacuous += int(vacuous.sum()) * o.shape[1]
            good = ~overflow & ~vacuous
            self.skipped += int(overflow.sum()) * o.shape[1]
            if not good.any():
                continue
            ratio = np.abs(got[head][good].astype(np.float64) - o[good]) / b[good]
            ratio = np.where(np.isnan(ratio), np.inf, ratio)
            self.elements += ratio.size
            self.ratios.append((b[good] / np.maximum(a[good], np.finfo(np.float64).tiny)).ravel())
            if ratio.max() > self.worst:
                self.worst, self.where = float(ratio.max()), f"{label} head {head}"

    def report(self, name):
        median = float(np.median(np.concatenate(self.ratios))) if self.ratios else math.nan
        print(f"{name:28s} elements {self.elements:8d}  max err/B {self.worst:.4f}  median B/A {median:.3g}"
              f"  out of range {self.skipped}  infinite {self.vacuous}  worst at {self.where}", flush=True)
        return self.worst <= 1


def cases(kind):
    for number, (regime, shape, mask) in enumerate(itertools.product(REGIMES, SHAPES, MASKS)):
        alpha = 1 / math.sqrt(shape[2])
        yield f"{regime} {shape} {mask}", alpha, draw(regime, shape, mask, kind, 1000 + number)


def check_mlx():
    import mlx.core as mx
    from mlx_lm.models.base import quantized_scaled_dot_product_attention as quantised

    types = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}

    def out_of(a):
        return np.array(a.astype(mx.float32))

    def mask_of(label, bias, visible, dtype):
        if label.endswith("causal"):
            return "causal"
        if label.endswith("bool"):
            return mx.array(visible)
        return mx.array(bias).astype(dtype) if label.endswith("additive") else None

    ok = True
    for kind, dtype in types.items():
        tally, with_sinks = Tally(), Tally()
        for label, alpha, (q, k, v, bias, visible) in cases(kind):
            arrays = [mx.array(a)[None].astype(dtype) for a in (q, k, v)]
            mask = mask_of(label, bias, visible, dtype)
            got = mx.fast.scaled_dot_product_attention(*arrays, scale=alpha, mask=mask)
            tally.add(out_of(got)[0], q, k, v, alpha, bias, visible, None, mlx_plan, kind, label)
            sinks = to_storage(np.linspace(-2, 6, q.shape[0]), kind)
            got = mx.fast.scaled_dot_product_attention(
                *arrays, scale=alpha, mask=mask, sinks=mx.array(sinks).astype(dtype))
            with_sinks.add(out_of(got)[0], q, k, v, alpha, bias, visible, sinks, mlx_plan, kind, label)
        ok &= tally.report(f"mlx sdpa {kind}")
        ok &= with_sinks.report(f"mlx sdpa with sinks {kind}")
    for kind, dtype in types.items():
        for bits in (3, 4, 8):
            tally = Tally()
            for label, alpha, (q, k, v, bias, visible) in cases(kind):
                if k.shape[2] % 32 or (kind != "f32" and k.shape[1] > 200):
                    continue
                arrays = [mx.array(a)[None].astype(dtype) for a in (q, k, v)]
                coded = [mx.quantize(a, group_size=32, bits=bits) for a in arrays[1:]]
                decoded = [out_of(mx.dequantize(*c, group_size=32, bits=bits))[0] for c in coded]
                got = quantised(arrays[0] * 1, coded[0], coded[1], scale=alpha,
                                mask=mask_of(label, bias, visible, dtype), group_size=32, bits=bits)
                tally.add(out_of(got)[0], q, *decoded, alpha, bias, visible, None, mlx_lm_plan, kind, label)
            ok &= tally.report(f"mlx-lm quantised {kind} {bits}-bit")
    return ok


def check_torch():
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    global VECTOR
    VECTOR = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    ok = True
    for backend, make_plan in ((SDPBackend.FLASH_ATTENTION, torch_flash_plan), (SDPBackend.MATH, torch_math_plan)):
        for kind, dtype in types.items():
            tally = Tally()
            for label, alpha, (q, k, v, bias, visible) in cases(kind):
                arrays = [torch.from_numpy(a.copy())[None].to(dtype) for a in (q, k, v)]
                mask, causal = None, False
                if label.endswith("additive"):
                    mask = torch.from_numpy(bias).to(dtype)
                elif label.endswith("causal") and q.shape[1] == k.shape[1]:
                    causal = True
                elif not visible.all():
                    mask = torch.from_numpy(visible)
                with sdpa_kernel(backend):
                    got = torch.nn.functional.scaled_dot_product_attention(
                        *arrays, attn_mask=mask, is_causal=causal, scale=alpha, enable_gqa=True)
                tally.add(got[0].float().numpy(), q, k, v, alpha, bias, visible, None, make_plan, kind, label)
            ok &= tally.report(f"torch {backend.name.lower()} {kind}")
    return ok


def main():
    ok, found = True, 0
    for name, check in (("mlx.core", check_mlx), ("torch", check_torch)):
        try:
            __import__(name)
        except ImportError:
            continue
        found += 1
        ok &= check()
    if not found:
        sys.exit("neither mlx nor torch can be imported: install one of them")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
