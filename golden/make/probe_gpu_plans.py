"""Asks the attention kernels of PyTorch on a GPU how they compute: the facts behind their plans in reference/spec/known_plans.cc.

    python3 golden/make/probe_gpu_plans.py [--kernels math,efficient,...] [--types bf16,...]

Needs a CUDA build of PyTorch and a GPU, and nothing else. Each probe is a call whose exact result is known by construction
and whose rounded result tells one field of a plan: scores are q = e_0 times k = s_j e_0, exact in any accumulator, and V is
chosen so that everything but the rounding in question cancels. Prints a table (what was found: plans_of_libraries.md,
section 8).
"""
import argparse
import math
import warnings

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SIGNIFICANT_BITS = {"f32": 24, "f16": 11, "bf16": 8}
DIM = 64


def flex(queries):
    from torch.nn.attention.flex_attention import flex_attention
    compiled = torch.compile(flex_attention, dynamic=False)

    def call(q, k, v, scale):
        options = {"FORCE_USE_FLEX_ATTENTION": queries > 1}
        return compiled(q, k, v, scale=scale, return_lse=True, kernel_options=options)
    return call


def math_path(q, k, v, scale):
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale), None


def flash(q, k, v, scale):
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, False, scale=scale)[:2]


def efficient(q, k, v, scale):
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, False, scale=scale)[:2]


def cudnn(q, k, v, scale):
    return torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, False, False, scale=scale)[:2]


# Name: (what makes the call, queries of it). One query is decoding, for which some libraries have another kernel.
KERNELS = {
    "math": (lambda n: math_path, 64),
    "efficient": (lambda n: efficient, 64),
    "efficient, L=1": (lambda n: efficient, 1),
    "flash": (lambda n: flash, 64),
    "flash, L=1": (lambda n: flash, 1),
    "cudnn": (lambda n: cudnn, 64),
    "cudnn, L=1": (lambda n: cudnn, 1),
    "flex": (flex, 128),
    "flex decoding": (flex, 1),
}


class Kernel:
    """One kernel for operands of one type."""

    dim = DIM

    def __init__(self, name, kind):
        make, self.queries = KERNELS[name]
        self.call, self.dtype, self.kind = make(self.queries), TYPES[kind], kind

    def __call__(self, q, k, v, scale=1.0):
        """out (dv) and log-sum-exp of one query, in double. q (d), k (n, d), v (n, d), rounded to the type before."""
        def batched(rows):
            wide = torch.nn.functional.pad(rows, (0, self.dim - DIM))
            return wide.to(self.dtype).cuda().reshape(1, 1, -1, self.dim).contiguous()
        out, lse = self.call(batched(q.expand(self.queries, DIM)), batched(k), batched(v), scale)
        out = out.double().cpu()[0, 0]
        assert (out == out[0]).all() or out.isnan().any(), "equal queries, different outputs"
        return out[0], None if lse is None else lse.double().cpu().reshape(-1)[0].item()

    def of_scores(self, scores, values, scale=1.0):
        """The same for scores (n) times scale and one column of values (n)."""
        k, v = torch.zeros(len(scores), DIM), torch.zeros(len(scores), DIM)
        k[:, 0], v[:, 0] = torch.as_tensor(scores), torch.as_tensor(values)
        q = torch.zeros(DIM)
        q[0] = 1
        out, lse = self(q, k, v, scale)
        return out[0].item(), lse

    def rounded(self, x):
        return torch.tensor(x, dtype=torch.float64).to(self.dtype).double()


def stored_weights(kernel):
    """Two keys of scores 0 and -delta, values 1 and -1: out (1 + w) = 1 - w, where w is what multiplies V."""
    worst = {kind: 0.0 for kind in TYPES}
    for k in range(1, 128, 3):
        delta = kernel.rounded(k * 2.0**-9).item()
        out, _ = kernel.of_scores([0.0, -delta], [1.0, -1.0])
        true = math.exp(-delta)
        seen = 1 - out * (1 + true)
        output = abs(1 - seen) * 2.0**-SIGNIFICANT_BITS[kernel.kind] + 2.0**-22
        for kind in TYPES:
            weight = torch.tensor(true, dtype=torch.float64).to(TYPES[kind]).item()
            worst[kind] = max(worst[kind], abs(seen - weight) / output)
    # In multiples of what storing the output explains; several types fit where the output hides them.
    return " ".join(f"{kind}:{ratio:.1f}" for kind, ratio in worst.items())


def normalised_first(kernel):
    """Weights 1 and 3/4 cancel against values 3 and -4 unless they are divided, and rounded, before P.V."""
    out, _ = kernel.of_scores([0.0, kernel.rounded(math.log(0.75)).item()], [3.0, -4.0])
    return f"{out:.3g}"


def denominator(kernel):
    """1023 keys of a weight that the type rounds much: log-sum-exp from the rounded or from the exact weights?"""
    u = 2.0**-SIGNIFICANT_BITS[kernel.kind]
    best = max((x for x in (kernel.rounded(1 + k / 64).item() for k in range(64))),
               key=lambda x: abs(kernel.rounded(math.exp(-x)).item() / math.exp(-x) - 1))
    _, lse = kernel.of_scores([0.0] + [-best] * 1023, [1.0] * 1024)
    if lse is None:
        return "-"
    exact = math.log1p(1023 * math.exp(-best))
    low = math.log1p(1023 * kernel.rounded(math.exp(-best)).item())
    base = 1 / math.log(2)
    return f"exact {lse - exact:+.1e} rounded {lse - low:+.1e} base2 {lse - exact * base:+.1e} (u {u:.1e})"


def exp_error(kernel):
    """Relative error of the weight of 64 keys beside one of weight 1, seen through the log-sum-exp: largest, and resolution."""
    worst, resolution = 0.0, 0.0
    for k in range(0, 256):
        s = kernel.rounded(-k / 32).item()
        _, lse = kernel.of_scores([0.0] + [s] * 64, [0.0] * 65)
        if lse is None:
            return "-"
        sum_of_weights = 64 * math.exp(s)
        seen = math.expm1(lse) / sum_of_weights - 1
        can_see = (abs(lse) * 2.0**-24 + 64 * 2.0**-24 * 2) * (1 + sum_of_weights) / sum_of_weights
        if sum_of_weights > 1 and abs(seen) > worst:
            worst, resolution = abs(seen), can_see
    return f"2^{math.log2(worst) if worst else -99:.1f} (seen down to 2^{math.log2(resolution) if resolution else -99:.1f})"


def operand_bits(kernel):
    """Significant bits of q that reach a score (f32: TF32 keeps 11)."""
    kept = 0
    for bit in range(1, SIGNIFICANT_BITS[kernel.kind]):
        q, k = torch.zeros(DIM), torch.zeros(1, DIM)
        q[0], q[1], k[0, 0], k[0, 1] = 1 + 2.0**-bit, -1, 1, 1
        # Two keys, so that the score is seen in the ratio of weights where there is no log-sum-exp.
        keys = torch.cat([k * 2.0**bit, torch.zeros(1, DIM)])
        values = torch.zeros(2, DIM)
        values[0, 0] = 1
        out, lse = kernel(q, keys, values)
        if abs(out[0].item() - 1 / (1 + math.exp(-1))) < 0.01:
            kept = bit
    return str(kept + 1)


def score_alignment(kernel):
    """q.k = 2^a - 2^a + 1 with the 1 at channel c: the largest a at which it survives, for c = 2, 7, 8, 15, 16, 33, 63."""
    found = []
    limit = 15 if kernel.kind == "f16" else 40
    for c in (2, 3, 7, 8, 15, 16, 31, 32, 63):
        largest = 0
        for a in range(1, limit):
            q, k = torch.ones(DIM), torch.zeros(2, DIM)
            k[0, 0], k[0, 1], k[0, c] = 2.0**a, -(2.0**a), 1
            values = torch.zeros(2, DIM)
            values[0, 0] = 1
            out, _ = kernel(q, k, values)
            if abs(out[0].item() - 1 / (1 + math.exp(-1))) < 0.01:
                largest = a
        found.append(f"{c}:{largest}")
    return " ".join(found)


def value_alignment(kernel):
    """The same of P.V over keys of equal scores: 2^a, -2^a and 1 at key j."""
    found = []
    limit = 15 if kernel.kind == "f16" else 40
    for j in (2, 3, 7, 8, 15, 16, 31, 32, 63, 127):
        largest = 0
        for a in range(1, limit):
            values = torch.zeros(128)
            values[0], values[1], values[j] = 2.0**a, -(2.0**a), 1
            out, _ = kernel.of_scores([0.0] * 128, values)
            if abs(out * 128 - 1) < 0.01:
                largest = a
        found.append(f"{j}:{largest}")
    return " ".join(found)


def division(kernel):
    """n equal keys of value 1: n times fl(1/n) is not 1 for every n, n / n is."""
    if kernel.kind != "f32":
        return "-"
    # Lengths at which n fl(1/n) is not 1 in f32.
    lengths = [n for n in range(2, 128) if torch.tensor(n) * (1 / torch.tensor(float(n))) != 1]
    off = [n for n in lengths if kernel.of_scores([0.0] * n, [1.0] * n)[0] != 1.0]
    return f"{len(off)} of {len(lengths)} lengths are not 1" + (f", the first {off[0]}" if off else "")


def stored_partials(kernel):
    """Three keys at each end of 8192 whose halves cancel if partial outputs are rounded to the type when they are merged."""
    third = kernel.rounded(2 / 3).item()
    scores, values = [-60.0] * 8192, [0.0] * 8192
    scores[:3] = scores[-3:] = [0.0] * 3
    values[:2], values[-3:] = [1.0] * 2, [-third] * 3
    out, _ = kernel.of_scores(scores, values)
    return f"{out:.3g} (unrounded {(2 - 3 * third) / 6:.3g}, rounded 0)"


def subnormal(kernel):
    """V of 2^-130, weight 1: kept, or flushed to 0?"""
    if kernel.kind == "f16":
        tiny = 2.0**-20
    else:
        tiny = 2.0**-130
    out, _ = kernel.of_scores([0.0], [tiny])
    product, _ = kernel.of_scores([0.0, -80.0], [0.0, 2.0**-20]) if kernel.kind != "f16" else (0.0, None)
    return f"V {'kept' if out == tiny else 'flushed' if out == 0 else out}; P v below the normal numbers {'kept' if product else 'flushed'}"




PROBES = {
    "stored P (1.0 or less fits)": stored_weights,
    "P 3/4 and 1 against -4, 3": normalised_first,
    "denominator": denominator,
    "error of exp": exp_error,
    "bits of q": operand_bits,
    "q.k: 1 survives 2^a at channel": score_alignment,
    "P.V: 1 survives 2^a at key": value_alignment,
    "division": division,
    "partial outputs": stored_partials,
    "subnormal": subnormal,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default=",".join(KERNELS).replace(", L=1", "; L=1"))
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--dim", type=int, default=DIM, help="channels of a head (64)")
    parser.add_argument("--probes", help="those whose title holds this word")
    options = parser.parse_args()
    Kernel.dim = options.dim
    warnings.simplefilter("ignore")
    # Without this, what is not compiled any more is quietly computed by another path.
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10000
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
          f"{torch.cuda.get_device_name()}")
    for name in options.kernels.replace("; L=1", "@").split(","):
        name = name.replace("@", ", L=1")
        for kind in options.types.split(","):
            print(f"\n{name}, {kind}")
            kernel = Kernel(name, kind)
            for title, probe in PROBES.items():
                if options.probes and options.probes not in title:
                    continue
                try:
                    print(f"  {title}: {probe(kernel)}", flush=True)
                except (RuntimeError, NotImplementedError, AssertionError) as error:
                    print(f"  {title}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", flush=True)
                    if "No available kernel" in str(error) or "not support" in str(error) or "dtype" in str(error):
                        break


if __name__ == "__main__":
    main()
