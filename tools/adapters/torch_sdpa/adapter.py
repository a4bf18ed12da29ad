"""torch.nn.functional.scaled_dot_product_attention before kvcheck.

Options (each may be given once):
    --backend math|flash|efficient|cudnn   this one alone; left out, the dispatcher chooses
    --backend flex                         torch.nn.attention.flex_attention, compiled by Triton (a GPU)
    --gqa enable|expand                    groups of heads by enable_gqa (the default), or by repeating K and V
    --causal mask|bias                     bottom-right causal masks as boolean arrays (the default), or as
                                           torch.nn.attention.bias.causal_lower_right
    --device cpu|cuda                      where it runs (cpu)
    --threads N                            torch.set_num_threads

Each answer states the plan of the backend that was used, which torch._fused_sdp_choice tells
(golden/make/plans_of_libraries.md has the reasons of the plans). causal_top_left alone is is_causal; every other mask
goes in as an array. The log-sum-exp, which the public function drops, comes from the operator below it
(aten::_scaled_dot_product_flash_attention_for_cpu), where that one is what the function would call.
"""
import argparse
import contextlib
import warnings

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kvcheck_adapter import Adapter, Unsupported, case_mask, from_float32
from kvcheck_adapter.torch_arrays import TYPES, to_numpy, to_torch

BACKENDS = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
            "cudnn": SDPBackend.CUDNN_ATTENTION}
FLEX = "flex"
HALVES = ("f16", "bf16")
KINDS = ("f32", *HALVES)
# Rows that see nothing are zero on every path: flash has a row sum of 0, the math path's softmax is the safe one.
PROFILE = "masked_row=zero mask_value=-inf"


def parsed(options):
    parser = argparse.ArgumentParser(prog="torch_sdpa", allow_abbrev=False)
    parser.add_argument("--backend", choices=(*BACKENDS, FLEX))
    parser.add_argument("--gqa", choices=("enable", "expand"), default="enable")
    parser.add_argument("--causal", choices=("mask", "bias"), default="mask")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int)
    return parser.parse_args(options)


def plan_of(backend, kind, device):
    """The plan of a backend for operands of type `kind`."""
    if device == "cpu":
        if backend == SDPBackend.FLASH_ATTENTION:
            return f"base=torch_cpu_flash_{kind}"
        if backend == SDPBackend.MATH:
            return "base=torch_cpu_math"
        return "base=stranger"
    low = "" if kind in HALVES else f"_{kind}"
    return {SDPBackend.FLASH_ATTENTION: "base=flash_attention_2", SDPBackend.MATH: "base=torch_cuda_math",
            SDPBackend.EFFICIENT_ATTENTION: f"base=torch_cuda_efficient{low}",
            SDPBackend.CUDNN_ATTENTION: "base=torch_cuda_cudnn"}.get(backend, "base=stranger")


def mask_argument(fields, inputs):
    """(attn_mask or None, is_causal, whether it is the bottom-right causal mask alone) of a case."""
    text = str(fields.get("mask", "none"))
    if text == "causal_top_left":
        return None, True, False
    mask = case_mask(fields, inputs)
    if mask is None:
        return None, False, False
    if isinstance(mask, str):
        queries, keys = int(fields["l"]), int(fields["t"])
        return torch.from_numpy(np.tri(queries, keys, keys - queries, dtype=bool)), False, True
    if mask.dtype == np.bool_:
        return torch.from_numpy(np.ascontiguousarray(mask)), False, False
    kind = text.rsplit(":", 1)[1]
    if text.count("+"):  # case_mask widened it to hide what other terms hide
        mask = from_float32(mask, kind)
    return to_torch(mask, kind), False, False


def asked(fields, inputs):
    """What the library does not have."""
    kind = fields["q"]
    if kind not in TYPES or any(fields[name] != kind for name in ("k", "v", "out")):
        raise Unsupported("queries, K, V and the output are of one type: f64, f32, f16 or bf16")
    if fields.get("softcap") or "alibi_slopes" in inputs or "sinks" in inputs:
        raise Unsupported("no softcap, ALiBi or sinks")
    if fields.get("lse", "none") == "base2":
        raise Unsupported("the log-sum-exp is natural")
    return kind


class TorchSdpa(Adapter):
    name = "torch-sdpa"
    version = torch.__version__
    kinds = ("attention",)
    profile = PROFILE

    def __init__(self, *options):
        self.options = parsed(options)
        if self.options.threads:
            torch.set_num_threads(self.options.threads)
        if self.options.backend == FLEX and self.options.device != "cuda":
            raise SystemExit("torch_sdpa: --backend flex needs --device cuda")
        if self.options.device == "cuda" and not torch.cuda.is_available():
            raise SystemExit("torch_sdpa: this PyTorch sees no GPU (torch.cuda.is_available() is False)")
        given = [f"{key}={value}" for key, value in vars(self.options).items()
                 if value not in (None, "enable", "mask", "cpu")]
        if self.options.device == "cuda":
            given.append(torch.cuda.get_device_name())
        if given:
            self.version += f" ({', '.join(given)})"
        # Without a GPU the CPU's dispatcher knows two backends; a plan that holds for all answers is not stated.
        self.spaces = [self.space(kind, lse) for kind in KINDS for lse in self.with_lse()]

    def with_lse(self):
        """The log-sum-exp is there where flash is what is called."""
        if self.options.backend == FLEX:
            return (False, True)
        flash = self.options.backend in (None, "flash") and self.options.device == "cpu"
        return (False, True) if flash else (False,)

    def space(self, kind, lse):
        """Flash and cuDNN want Dk = Dv; the dispatcher falls back to the math path."""
        made = {"kind": "attention", "q": [kind], "k": [kind], "v": [kind], "out": "q", "lse": lse, "sinks": False,
                "softcap": False, "alibi": False, "against_original": False}
        if (lse and self.options.backend != FLEX) or self.options.backend in ("flash", "cudnn"):
            made["same_dims"] = True
        return made

    def attention(self, fields, inputs):
        kind = asked(fields, inputs)
        device = self.options.device
        scale = float(fields.get("scale") or int(fields["d"])**-0.5)
        given = {name: to_torch(inputs[name], kind) for name in ("q", "k", "v")}
        q, k, v = (tensor.to(device) for tensor in given.values())
        mask, is_causal, bottom_right = mask_argument(fields, inputs)
        if self.options.backend == FLEX:
            from flex import flex_answer
            plan, answer = flex_answer(fields, q, k, v, mask, is_causal, scale)
            self.declare(plan=plan, profile=PROFILE)
            return answer
        if bottom_right and self.options.causal == "bias":
            from torch.nn.attention.bias import causal_lower_right
            mask = causal_lower_right(q.shape[2], k.shape[2])
        elif mask is not None:
            mask = mask.to(device)
        grouped = q.shape[1] != k.shape[1]
        if grouped and self.options.gqa == "expand":
            groups = q.shape[1] // k.shape[1]
            k, v, grouped = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1), False
        call = {"attn_mask": mask, "is_causal": is_causal, "scale": scale, "enable_gqa": grouped}
        if fields.get("lse", "none") == "natural":
            return self.with_log_sum(kind, q, k, v, call)
        backend = self.chosen(q, k, v, call)
        try:
            with warnings.catch_warnings(), sdpa_kernel(backend) if self.options.backend else contextlib.nullcontext():
                warnings.simplefilter("ignore")  # why a backend was not taken, of one that was not asked for
                out = torch.nn.functional.scaled_dot_product_attention(q, k, v, **call)
        except RuntimeError as error:
            if "No available kernel" in str(error) or "No viable backend" in str(error):
                raise Unsupported(f"{backend.name} does not take this call") from None
            raise
        self.declare(plan=plan_of(backend, kind, device), profile=PROFILE)
        return {"out": to_numpy(out)}

    def chosen(self, q, k, v, call):
        if self.options.backend is not None:
            return BACKENDS[self.options.backend]
        mask = call["attn_mask"]
        if type(mask) not in (torch.Tensor, type(None)):  # CausalBias becomes an array
            mask = mask._materialize(q.device)
        choice = torch._fused_sdp_choice(q, k, v, mask, 0.0, call["is_causal"], scale=call["scale"],
                                         enable_gqa=call["enable_gqa"])
        return SDPBackend(choice) if choice >= 0 else SDPBackend.MATH

    def with_log_sum(self, kind, q, k, v, call):
        if (self.options.device != "cpu" or self.options.backend not in (None, "flash")
                or self.chosen(q, k, v, call) != SDPBackend.FLASH_ATTENTION):
            raise Unsupported("the log-sum-exp comes from the CPU's flash operator, which does not take this call")
        mask = call["attn_mask"]
        if mask is not None and type(mask) is not torch.Tensor:
            mask = mask._materialize(q.device)
        if mask is not None and mask.dtype == torch.bool:  # as the public function does before it calls
            mask = torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, call["is_causal"], attn_mask=mask, scale=call["scale"])
        self.declare(plan=plan_of(SDPBackend.FLASH_ATTENTION, kind, "cpu"), profile=PROFILE)
        return {"out": to_numpy(out), "lse": to_numpy(lse)}
