"""The codes of transformers' QuantizedCache with optimum-quanto before kvcheck: per channel (axis -1), or in groups of channels of a
token (axis 0, which is the default), of K and of V.

    new     QuantizedCache("quanto") of one layer; axes, bits, group and residual are those of the formats
            channel:BITS:gTOKENS:rRESIDUAL:TYPE (axis -1) and affine:BITS:gGROUP:rRESIDUAL:TYPE (axis 0)
    append  Cache.update. What it returns is what its queries see: read codes, residual and new vectors. It is shown as what the layer
            holds before the call, where the numbers returned are those that this stands for, bit for bit, and else as the numbers
    attend  torch's scaled_dot_product_attention over what was returned

Option: --cache-profile TEXT states another one, to see that it is judged.

The cache codes everything again when its residual is full: regroup=all (reference/cache/contract.md, section 4.1). Its first update codes
everything at once. A pass over a number of tokens that is no multiple of a group along tokens is declined, for quanto flattens heads before it
groups; so is one over a single group of channels, of which quanto makes no group.
"""
import argparse

import numpy as np
import torch
import transformers
from optimum.quanto.tensor.grouped import ungroup
from torch.nn.attention import SDPBackend
from transformers import LlamaConfig
from transformers.cache_utils import QuantizedCache

from kvcheck_adapter import Adapter, Refused, Unsupported
from kvcheck_adapter.channel import Channel, packed, unpacked
from kvcheck_adapter.residual_affine import ResidualAffine
from kvcheck_adapter.storage import from_float32, to_float32
from kvcheck_adapter.torch_arrays import TYPES, to_numpy, to_torch

PLAIN = list(TYPES)[1:]
# What is drawn, of 2 and 4 bits.
FORMATS = ("channel:{}:g8:*", "channel:{}:g32:*", "affine:{}:g32:r3:*", "affine:{}:g64:r16:*")
CONFIG = LlamaConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1)


class Tracked:
    __slots__ = ("cache", "k", "v", "fed", "returned")

    def __init__(self, cache, k, v, fed=0):
        self.cache, self.k, self.v, self.fed, self.returned = cache, k, v, fed, None

    @property
    def layer(self):
        return self.cache.layers[0]


def read(fmt, planes):
    """The numbers that planes of tokens stand for, product and sum each rounded to the row type."""
    codes = unpacked(planes[0], fmt.bits).astype(np.float32)
    scales, zeros = (np.repeat(to_float32(part, fmt.type), codes.shape[-1] // part.shape[-1], -1) for part in planes[1:3])

    def rounded(x):
        return to_float32(from_float32(x, fmt.type), fmt.type)

    numbers = from_float32(rounded(codes * scales) + zeros, fmt.type)
    return numbers if len(planes) == 3 else np.where((scales == 0) & (zeros == 0), planes[3], numbers)


def axis_of(fmt):
    return -1 if fmt.family is Channel else 0


def group_of(fmt):
    """Tokens of a channel, or channels of a token."""
    return Channel.tokens(fmt) if fmt.family is Channel else fmt.group


def residual_of(fmt):
    if fmt.family is ResidualAffine:
        return ResidualAffine.residual(fmt)
    return next((int(part[1:]) for part in fmt.text.split(":") if part[0] == "r"), Channel.tokens(fmt))


class TransformersQuantized(Adapter):
    name = "transformers-quantized"
    version = f"{transformers.__version__} (torch {torch.__version__})"
    cache_profile = "regroup=all reads=before"
    profile = "decode=two_roundings channel=kivi masked_row=zero mask_value=-inf"
    spaces = [{"kind": "cache", "layouts": ["linear"], "x": PLAIN, "scales": "x", "same_format": True, "rows": "single", "padding": False,
               "same_dims": True, "window": False, "sinks": False, "operations": ["new", "append", "attend", "drop"],
               "formats": [text.format(bits) for text in FORMATS for bits in (2, 4)]}]

    def __init__(self, *options):
        parser = argparse.ArgumentParser(prog="transformers_quantized", allow_abbrev=False)
        parser.add_argument("--cache-profile", default=self.cache_profile)
        self.cache_profile = parser.parse_args(options).cache_profile
        layer = QuantizedCache("quanto", CONFIG, nbits=4, axis_key=-1, axis_value=-1, q_group_size=8).layers[0]
        layer._dequantize(layer._quantize(torch.randn(1, 1, 8, 8), -1))  # quanto compiles its kernels when they are first asked for

    # ------------------------------------------------------------------------------------- arrays
    def give(self, array, kind):
        if kind not in TYPES:
            raise Unsupported(f"no vectors of type {kind}")
        return to_torch(array, kind)

    def keep(self, array):
        return array.copy() if isinstance(array, np.ndarray) else array.clone()

    def numpy(self, array):
        return array if isinstance(array, np.ndarray) else to_numpy(array)

    # --------------------------------------------------------------------------------- operations
    def new(self, layout, k, v, rows, padding):
        coded = all(fmt.family in (Channel, ResidualAffine) and fmt.bits in (2, 4) for fmt in (k, v))
        if not coded or layout.text != "linear" or rows != 1 or any(padding):
            raise Unsupported("K and V of 2 or 4 bits per channel, or affine with a residual; one row without padding")
        if any(of(k) != of(v) for of in (lambda fmt: fmt.bits, group_of, residual_of, lambda fmt: fmt.type)):
            raise Unsupported("K and V of other bits, groups, residuals or types: the cache has one of each")
        return Tracked(QuantizedCache("quanto", CONFIG, nbits=k.bits, axis_key=axis_of(k), axis_value=axis_of(v), q_group_size=group_of(k),
                                      residual_length=residual_of(k)), k, v)

    def append(self, tracked, k, v):
        rows, heads, columns, dim = k.shape
        s, layer = self.setup, tracked.layer
        if (rows, heads, dim) != (1, s.kv_heads, s.k_dim) or k.dtype != TYPES[s.x] or v.shape != (1, heads, columns, s.v_dim):
            raise Refused("columns of another shape or type than the setup's")  # which its caller knows
        held = layer.keys.shape[-2] if tracked.fed and layer.keys.dim() == 4 else 0
        total = tracked.fed + columns
        if tracked.fed == 0 or held + columns >= layer.residual_length:
            for fmt, width in ((tracked.k, k.shape[3]), (tracked.v, v.shape[3])):
                if fmt.family is Channel and total % Channel.tokens(fmt):
                    raise Unsupported(f"a pass over {total} tokens groups across heads")
                if fmt.family is ResidualAffine and heads * total * width == fmt.group:
                    raise Unsupported("a pass over one group is none")
        before = self.held(tracked, s.kv_heads)
        returned = tracked.cache.update(k, v, 0)
        tracked.fed, tracked.returned = total, returned
        parts = []
        for fmt, planes, new, numbers in zip((tracked.k, tracked.v), before, (k, v), returned):
            shown = [np.concatenate(pair, 2) for pair in zip(planes, self.vectors(fmt, to_numpy(new)))]
            numbers = to_numpy(numbers)
            same = numbers.shape == (1, heads, shown[0].shape[2], numbers.shape[-1]) and read(fmt, shown).tobytes() == numbers.tobytes()
            parts.append(tuple(shown if same else self.vectors(fmt, numbers)))
        return (*parts, None if columns == 1 else "causal")

    def vectors(self, fmt, numbers):
        """The planes of tokens that are not coded."""
        words = np.zeros((*numbers.shape[:-1], numbers.shape[-1] * fmt.bits // 32), np.uint32)
        if fmt.family is Channel:
            return words, np.zeros_like(numbers), numbers
        scales = np.zeros((*numbers.shape[:-1], numbers.shape[-1] // fmt.group), numbers.dtype)
        return words, scales, scales.copy(), numbers

    def held(self, tracked, heads):
        """Of K and of V: the planes of all tokens that the layer holds."""
        layer, dims = tracked.layer, (self.setup.k_dim, self.setup.v_dim)
        held = []
        for fmt, dim, stored, residual in zip((tracked.k, tracked.v), dims, (layer._quantized_keys, layer._quantized_values),
                                              (layer.keys, layer.values)):
            if stored is None:
                held.append(self.vectors(fmt, np.zeros((1, heads, 0, dim), to_numpy(torch.zeros(0, dtype=TYPES[fmt.type])).dtype)))
                continue
            tokens = stored.shape[-2]
            codes = packed(ungroup(stored._data.unpack(), axis_of(fmt), (1, heads, tokens, dim)).numpy(), fmt.bits)
            parts = (stored._scale, -stored._shift + 0)
            if fmt.family is Channel:
                group = Channel.tokens(fmt)
                scales, zeros = (to_numpy(part.reshape(dim, -1).t().contiguous()).reshape(1, heads, tokens // group, dim) for part in parts)
                coded = (codes, np.repeat(scales, group, 2), np.repeat(zeros, group, 2))
            else:
                scales, zeros = (to_numpy(part.contiguous()).reshape(1, heads, tokens, dim // fmt.group) for part in parts)
                coded = (codes, scales, zeros, np.zeros((1, heads, tokens, dim), scales.dtype))
            if residual.dim() == 4:
                coded = tuple(np.concatenate(pair, 2) for pair in zip(coded, self.vectors(fmt, to_numpy(residual))))
            held.append(coded)
        return held

    def attend(self, tracked, step, q, scale, window, sinks):
        if window is not None or sinks is not None:
            raise Unsupported("a window, or sinks")
        keys, values = tracked.returned
        columns = keys.shape[-2]
        visible = torch.ones(step.queries, columns, dtype=torch.bool).tril(columns - step.queries)
        keys, values = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (keys, values))
        kernel = SDPBackend(torch._fused_sdp_choice(q, keys, values, visible, 0.0, False, scale=scale))
        self.declare(plan=f"base=torch_cpu_flash_{self.setup.x}" if kernel == SDPBackend.FLASH_ATTENTION else "base=torch_cpu_math")
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=visible, scale=scale)

    # --------------------------------------------------------------------------------------- tell
    def retained(self, tracked):
        k, v = self.held(tracked, self.setup.kv_heads)
        return k, v, np.ones((1, k[0].shape[2]), bool)

    def tell(self, tracked):
        return {"k_format": tracked.k.text, "v_format": tracked.v.text, "offsets": [tracked.cache.get_seq_length()],
                "size": tracked.cache.get_seq_length()}


ADAPTER = TransformersQuantized
