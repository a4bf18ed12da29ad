"""One attention problem of a golden file: its case text, its stored inputs, and its mask as an array.

The case states what a mask means (causal, window, padding); libraries that have no such argument get the boolean array
which this module derives from the same statement. The text is the canonical print of the case grammar.
"""
import dataclasses
import math

import numpy as np

import kvcheck_golden as kg
import regimes

MASK_SHAPES = {
    "T": lambda p: (p.kv_len,),
    "LT": lambda p: (p.query_len, p.kv_len),
    "B1LT": lambda p: (p.batch, 1, p.query_len, p.kv_len),
    "BHLT": lambda p: (p.batch, p.query_heads, p.query_len, p.kv_len),
    "B11T": lambda p: (p.batch, 1, 1, p.kv_len),
}


@dataclasses.dataclass
class Problem:
    """Fields as in the grammar of cases. `hide_rows`: queries that a mask array hides entirely."""

    name: str
    kind: str
    batch: int = 1
    query_heads: int = 2
    kv_heads: int = 1
    query_len: int = 1
    kv_len: int = 16
    k_dim: int = 64
    v_dim: int = 0
    causal: str = ""  # "", bottom_right or top_left
    window: int = 0
    left_pad: tuple = ()
    array: str = ""  # "", bool or additive
    axes: str = "LT"
    additive_kind: str = ""  # default: kind
    additive_hides: bool = False  # -inf where a boolean mask would hide
    hide_rows: tuple = ()
    scale: float = 0.0  # default 1/sqrt(k_dim)
    sinks: bool = False
    lse: bool = False
    regime: str = "gauss"
    k_format: str = ""  # default: kind
    v_format: str = ""

    def __post_init__(self):
        self.v_dim = self.v_dim or self.k_dim
        self.scale = self.scale or 1.0 / math.sqrt(self.k_dim)
        self.additive_kind = self.additive_kind or self.kind
        self.k_format = self.k_format or self.kind
        self.v_format = self.v_format or self.kind
        rng = regimes.generator(self.name)
        operands = regimes.attention_operands(self.regime, rng, self.batch, self.query_heads, self.kv_heads,
                                              self.query_len, self.kv_len, self.k_dim, self.v_dim)
        self.q, self.k, self.v = (regimes.to_storage(a, self.kind) for a in operands)
        self.mask = self._draw_mask(rng) if self.array else None
        self.sink_values = (regimes.to_storage(np.linspace(-1, 4, self.query_heads), self.kind) if self.sinks else None)

    def _draw_mask(self, rng):
        shape = MASK_SHAPES[self.axes](self)
        visible = rng.random(shape) < 0.6
        visible[..., rng.integers(0, self.kv_len)] = True  # no row is hidden by chance
        if self.hide_rows:
            visible[..., list(self.hide_rows), :] = False
        if self.array == "bool":
            return visible
        bias = -np.abs(rng.standard_normal(shape)) * 2
        if self.additive_hides:
            bias = np.where(visible, bias, -np.inf)
        return regimes.to_storage(bias, self.additive_kind)

    # ------------------------------------------------------------------------------------ text

    def mask_text(self):
        terms = []
        if self.causal:
            terms.append("causal_" + self.causal)
        if self.window:
            terms.append(f"window:{self.window}")
        if self.left_pad:
            terms.append("left_pad:" + ",".join(map(str, self.left_pad)))
        if self.array == "bool":
            terms.append("bool:" + self.axes)
        if self.array == "additive":
            terms.append(f"additive:{self.axes}:{self.additive_kind}")
        return "+".join(terms) or "none"

    def case_text(self):
        text = (f"attention b={self.batch} hq={self.query_heads} hkv={self.kv_heads} l={self.query_len} "
                f"t={self.kv_len} d={self.k_dim}")
        if self.v_dim != self.k_dim:
            text += f" dv={self.v_dim}"
        scale = int(self.scale) if self.scale == int(self.scale) else repr(self.scale)
        text += (f" q={self.kind} k={self.k_format} v={self.v_format} out={self.kind} mask={self.mask_text()}"
                 f" scale={scale}")
        if self.sinks:
            text += f" sinks={self.kind}"
        if self.lse:
            text += " lse=natural"
        return text + " data=file"

    # ---------------------------------------------------------------------------------- inputs

    def scale_is_exact(self):
        """Whether scale q is q's own type again, without rounding: then nothing is lost by scaling first."""
        if math.frexp(self.scale)[0] != 0.5:
            return False
        scaled = regimes.widen(self.q, self.kind) * self.scale
        return bool(np.array_equal(regimes.widen(regimes.to_storage(scaled, self.kind), self.kind), scaled))

    def other_inputs(self):
        """The mask array and the sinks, as the golden writer takes them."""
        inputs = {}
        if self.mask is not None:
            inputs["mask"] = (self.mask if self.array == "bool" else
                              kg.Typed(self.mask, regimes.LONG_NAMES[self.additive_kind]))
        if self.sink_values is not None:
            inputs["sinks"] = regimes.typed(self.sink_values, self.kind)
        return inputs

    def inputs(self):
        return {"q": regimes.typed(self.q, self.kind), "k": regimes.typed(self.k, self.kind),
                "v": regimes.typed(self.v, self.kind), **self.other_inputs()}

    def stated_mask(self):
        """What causal, window and padding let a query see: bool (L,T), or (B,1,L,T) with padding; None without."""
        if not (self.causal or self.window or self.left_pad):
            return None
        key = np.arange(self.kv_len)[None]
        query = np.arange(self.query_len)[:, None]
        position = query if self.causal == "top_left" else query + self.kv_len - self.query_len
        visible = np.ones((self.query_len, self.kv_len), bool)
        if self.causal:
            visible &= key <= position
        if self.window:
            visible &= key > position - self.window
        if self.left_pad:
            padding = np.array(self.left_pad)[:, None, None, None]
            visible = visible[None, None] & (key[None, None] >= padding)
        return visible

    def visible_and_bias(self):
        """(B,Hq,L,T) each: bool, and float64 with 0 where there is none."""
        shape = (self.batch, self.query_heads, self.query_len, self.kv_len)
        visible, bias = np.ones(shape, bool), np.zeros(shape)
        stated = self.stated_mask()
        if stated is not None:
            visible &= stated
        if self.array == "bool":
            visible &= self.mask
        elif self.array == "additive":
            values = regimes.widen(self.mask, self.additive_kind)
            visible &= values > -np.inf
            bias = np.where(visible, bias + np.where(np.isinf(values), 0, values), 0)
        return visible, bias
