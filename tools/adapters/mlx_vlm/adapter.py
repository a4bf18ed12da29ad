"""The TurboQuant caches of mlx-vlm, on the CPU, before kvcheck.

    new          TurboQuantKVCache for one row without padding, BatchTurboQuantKVCache for several rows or with it; KVCache, which
                 quantizes later, for one row of plain vectors. Bits of K and V as key_bits and value_bits; those of half a bit, whose
                 channels the library chooses by the first tokens, by prefix_cache_restore with the channels of the format
    append       base.create_attention_mask, then update_and_fetch
    trim         trim, the count as it was asked for
    filter, extend, extract   those of the batch; a cache of one row becomes a batch first, by prefix_cache_merge
    merge        prefix_cache_merge
    copy         prefix_cache_snapshot of arrays of its own, prefix_cache_restore; a batch has none
    to_quantized TurboQuantKVCache.from_cache, or a new one where there are no tokens, as generate does from its 5000th token on
    attend       base.scaled_dot_product_attention: in the rotated domain where the library does it, else over decoded K and V

K and V are shown as they are stored, codes and norms, but for what the format leaves open (freedom.py).

Options:
    --patched             the causes of FINDINGS.md are repaired (patched.py)
    --repair NAME         one of them alone; may be given several times
    --head-dims N...      cases are drawn of these head_dims alone
    --padding nan|zero    what columns of padding hold: kvcheck's NaN (the default), or zeros, since a model feeds finite numbers
"""
import argparse
import copy
import importlib.metadata

import package  # before anything of mlx_vlm
import mlx.core as mx
import numpy as np
from mlx_vlm import turboquant as library
from mlx_vlm.models import base
from mlx_vlm.models.cache import KVCache

import rotated_plan
from freedom import Known, parts_of
from kvcheck_adapter import Adapter, Refused, Unsupported
from kvcheck_adapter.mlx_arrays import TYPES, sdpa_plan, to_mlx, to_numpy
from kvcheck_adapter.split_turboquant import SplitTurboquant
from kvcheck_adapter.turboquant import parameters

PLAIN = list(TYPES)
WHOLE_BITS = (2, 3, 4)
HEAD_DIMS = (32, 64, 128)
HALF = "h5555aaaa00ffff00"  # channels of more bits, of 64
OPERATIONS = ["new", "append", "finalize", "trim", "copy", "attend", "drop", "filter", "extend", "merge", "extract"]


def formats(bits, d, kind):
    """K's and V's text: a bit depth each."""
    texts = []
    for seed, b in zip(("", ":s1"), bits):
        high = f":{HALF}" if b % 1 else ""
        texts.append(f"turboquant:{b:g}:g{d}:mlx_vlm{high}{seed}:{kind}")
    return " ".join(texts)


def spaces(head_dims):
    pairs = [formats((k, v), d, kind) for kind in PLAIN for d in head_dims for k in WHOLE_BITS for v in WHOLE_BITS if 0 <= v - k <= 1]
    if 64 in head_dims:
        pairs += [formats(bits, 64, kind) for kind in PLAIN for bits in ((3.5, 3.5), (4, 2.5))]
    # A batch of which no row is left is dropped (GenerationBatch.filter in generate/ar.py).
    common = {"kind": "cache", "x": PLAIN, "scales": "x", "stored_as_given": True, "layouts": ["linear", "linear:w"],
              "empty_batch": False}
    return [{**common, "formats": [], "pairs": pairs, "rows": "any", "padding": True, "operations": OPERATIONS},
            {**common, "formats": PLAIN, "pairs": pairs, "rows": "single", "padding": False,
             "operations": ["new", "append", "trim", "to_quantized", "attend", "drop"]}]


class Columns:
    """All that base.create_attention_mask asks of hidden states."""
    __slots__ = ("shape",)

    def __init__(self, rows, columns):
        self.shape = (rows, columns, 1)


class TrackedCache:
    """A cache with what the library leaves to its callers: the window, which is given to make_mask."""
    __slots__ = ("cache", "layout", "k", "v", "rows", "returned", "before")

    def __init__(self, cache, layout, k, v, rows):
        self.cache, self.layout, self.k, self.v, self.rows = cache, layout, k, v, rows
        self.returned = self.before = None  # by the last append; what make_mask needs of the cache as it was

    def like(self, cache, rows):
        return TrackedCache(cache, self.layout, self.k, self.v, rows)

    @property
    def is_batch(self):
        return isinstance(self.cache, library.BatchTurboQuantKVCache)


def needs_channels(*several):
    """Channels of half a bit are the library's choice by the first tokens, but for a cache of one row (choose_channels)."""
    if all(tracked.cache.keys is None for tracked in several) and (high_and_low(several[0].k) or high_and_low(several[0].v)):
        raise Unsupported("a batch chooses the channels of half a bit by its first tokens")


def batch_of(tracked):
    """The library's batch: the cache itself, or one made of it as of a cached prefix."""
    if tracked.is_batch:
        return tracked.cache
    if not isinstance(tracked.cache, library.TurboQuantKVCache):
        raise Unsupported("a cache of plain vectors joins no batch of codes")
    needs_channels(tracked)
    return tracked.cache.prefix_cache_merge([tracked.cache], [tracked.cache.offset])


def high_and_low(fmt):
    """(channels of fewer bits, of more); None where all have the same."""
    if fmt.family is not SplitTurboquant:
        return None
    return [mx.array(channels, dtype=mx.int32) for _, channels in parts_of(fmt.text)]


def planes(state):
    """(codes, norms) as the format has them: those of fewer bits first."""
    if isinstance(state, library.TurboQuantSplitState):
        halves = [planes(half) for half in (state.low, state.high)]
        return tuple(mx.concatenate(parts, axis=-1) for parts in zip(*halves))
    return state.indices, state.norms[..., None]


def text_of(codec, seed, kind):
    """The format of what a codec stores."""
    high = ""
    if isinstance(codec, library._SplitCodec):
        bits = np.zeros(codec.dim, np.uint8)
        bits[np.array(codec.high_idx)] = 1
        high = ":h" + "".join(f"{word:08x}" for word in np.packbits(bits, bitorder="little").view("<u4"))
    return f"turboquant:{codec.bits:g}:g{codec.dim}:mlx_vlm{high}{f':s{seed}' if seed else ''}:{kind}"


class MlxVlm(Adapter):
    name = "mlx-vlm"
    version = f"{importlib.metadata.version('mlx-vlm')} (mlx {importlib.metadata.version('mlx')})"
    kinds = ("cache",)
    # Size is that of all columns, under a window too; batches count their padding; empty() means that nothing was ever appended; is_trimmable() is always true.
    cache_profile = "size=columns bytes=capacity empty=any trimmable=any"
    profile = "decode=two_roundings turboquant=mlx_vlm"
    spaces = spaces(HEAD_DIMS)
    # "padding": "Wraps TurboQuant's quantization codecs with per-sequence offsets and left-padding"; its callers make it as the
    # longest prompt less each.
    relies_on = frozenset({"padding"})
    copies = True

    def __init__(self, *options):
        mx.set_default_device(mx.cpu)
        parser = argparse.ArgumentParser(prog="mlx_vlm", allow_abbrev=False)
        parser.add_argument("--head-dims", type=int, nargs="+", choices=HEAD_DIMS, default=HEAD_DIMS)
        parser.add_argument("--padding", choices=("nan", "zero"), default="nan")
        parser.add_argument("--patched", action="store_true")
        parser.add_argument("--repair", action="append", default=[])
        chosen = parser.parse_args(options)
        self.spaces, self.zero_padding = spaces(chosen.head_dims), chosen.padding == "zero"
        if chosen.patched or chosen.repair:
            import patched
            unknown = set(chosen.repair) - {repair.__name__ for repair in patched.REPAIRS}
            if unknown:
                parser.error(f"no repair {', '.join(sorted(unknown))}")
            patched.apply(chosen.repair)
        if chosen.patched:
            self.name = "mlx-vlm-patched"
        for d in {32, *chosen.head_dims}:  # some seconds each, on a busy machine, when they are first asked for
            for bits in WHOLE_BITS:
                library._TurboQuantMSECodec(d, bits, 0)
        if options:
            self.version += " " + " ".join(options)

    # ------------------------------------------------------------------------------------- arrays
    def give(self, array, kind):
        if kind not in TYPES:
            raise Unsupported(f"no vectors of type {kind}")
        return to_mlx(array, kind)

    def keep(self, array):
        return array.copy() if isinstance(array, np.ndarray) else mx.array(array)

    def ready(self, arrays, helds):
        mx.eval([array for array in arrays if isinstance(array, mx.array)])

    def numpy(self, array):
        return array if isinstance(array, np.ndarray) else to_numpy(array)

    def shown(self, known, fmt, state):
        """The planes of a state, as kvcheck gets them."""
        if fmt.is_plain:
            return (state,)
        codes, norms = planes(state)
        taken = known.shown(fmt.text, to_numpy(codes), to_numpy(norms))
        return taken if known.taken else (codes, norms)

    # --------------------------------------------------------------------------------- operations
    def start(self, setup):
        for kind in (library.TurboQuantKVCache, library.BatchTurboQuantKVCache):
            kind.cache_step = setup.growth_tokens
        self.known_k, self.known_v = Known(), Known()

    def new(self, layout, k, v, rows, padding):
        x = self.setup.x
        if layout.kind != "linear":
            raise Unsupported("TurboQuant caches are linear")
        if k.is_plain:
            if v.text != k.text or k.text != x or rows != 1 or any(padding):
                raise Unsupported("plain vectors: one row, stored as given")
            return TrackedCache(KVCache(), layout, k, v, 1)
        seeds = self.checked(k, self.setup.k_dim, 0), self.checked(v, self.setup.v_dim, 1)
        if seeds[0] != seeds[1]:
            raise Unsupported("V has the signs of the seed after K's")
        bits = {"bits": max(k.bits, v.bits), "seed": seeds[0], "key_bits": k.bits, "value_bits": v.bits}
        if rows == 1 and not any(padding):
            cache = library.TurboQuantKVCache(**bits)
            self.choose_channels(cache, k, v)
        else:
            cache = library.BatchTurboQuantKVCache(padding or [0] * rows, **bits)
            needs_channels(TrackedCache(cache, layout, k, v, rows))
        return TrackedCache(cache, layout, k, v, rows)

    def checked(self, fmt, dim, later):
        """The seed of the cache under which K, or V, has the signs of the format."""
        if fmt.is_plain or not fmt.text.startswith("turboquant:"):
            raise Unsupported("both K and V have TurboQuant codes")
        first = parts_of(fmt.text)[0][0]
        seed = next((int(part[1:]) for part in first.text.split(":") if part[0] == "s" and part[1:].isdigit()), 0)
        if fmt.group != dim or fmt.type != self.setup.x or seed < later:
            raise Unsupported("one group a vector, rows of the type of the vectors, V's seed after K's")
        for part, channels in parts_of(fmt.text):
            own = np.array(library._codebook(len(channels), part.bits))
            if ":mlx_vlm:" not in part.text or not np.array_equal(own, parameters(part.text)[0]):
                raise Unsupported("the centroids that mlx-vlm computes on this machine are not the format's")
        return seed - later

    def choose_channels(self, cache, k, v):
        """As a cached prefix of no tokens that was made with these channels."""
        if not (high_and_low(k) or high_and_low(v)):
            return
        snapshot = cache.prefix_cache_snapshot()
        for name, fmt in (("key_codec", k), ("value_codec", v)):
            snapshot[name] = (fmt.group, *(high_and_low(fmt) or (None, None)))
        cache.prefix_cache_restore(snapshot)

    def append(self, tracked, k, v):
        rows, _, queries, _ = k.shape
        cache = tracked.cache
        if {k.dtype, v.dtype} != {TYPES[self.setup.x]}:
            raise Refused("columns of another type: codes have none, and its caller knows")
        if cache.keys is None or tracked.k.is_plain:  # what a cache of plain vectors refuses is not asked here
            self.check_shape(tracked, k, v)
        if self.zero_padding:
            k, v = (mx.where(mx.isnan(array), mx.zeros_like(array), array) for array in (k, v))
        self.known_k.learn(to_numpy(k), self.setup.x)
        self.known_v.learn(to_numpy(v), self.setup.x)
        before = copy.copy(cache)
        mask = base.create_attention_mask(Columns(rows, queries), cache, window_size=tracked.layout.window)
        keys, values = cache.update_and_fetch(k, v)
        tracked.returned, tracked.before = (keys, values), before
        return (*(self.shown(known, fmt, cache._unwrap(state) if not fmt.is_plain else state)
                  for known, fmt, state in ((self.known_k, tracked.k, keys), (self.known_v, tracked.v, values))), mask)

    def check_shape(self, tracked, k, v):
        """A cache learns its shape from what is appended first; until then its caller knows it."""
        s = self.setup
        rows, heads, columns, dim = k.shape
        if (rows, heads, dim) != (tracked.rows, s.kv_heads, s.k_dim) or v.shape != (rows, heads, columns, s.v_dim):
            raise Refused("columns of another shape than the setup's")

    def trim(self, tracked, count):
        if tracked.k.is_plain and count < 0:
            raise Refused("a cache of plain vectors: mlx-lm's, and judged there")
        return tracked.cache.trim(count)

    def filter(self, tracked, rows):
        cache = batch_of(tracked)
        cache.filter(mx.array(rows, mx.int32))
        tracked.cache, tracked.rows = cache, len(rows)

    def extend(self, tracked, other):
        cache = batch_of(tracked)
        cache.extend(cache if other is tracked else batch_of(other))
        tracked.cache, tracked.rows = cache, tracked.rows + other.rows

    def merge(self, several):
        if any(tracked.is_batch or not hasattr(tracked.cache, "bits") for tracked in several):
            raise Unsupported("prefix_cache_merge takes caches of one sequence, of codes")
        needs_channels(*several)
        made = several[0].cache.prefix_cache_merge([tracked.cache for tracked in several],
                                                   [tracked.cache.offset for tracked in several])
        if made is None:
            raise Refused("prefix_cache_merge: they cannot be joined")
        return several[0].like(made, len(several))

    def extract(self, tracked, row):
        return tracked.like(batch_of(tracked).extract(row), 1)

    def to_quantized(self, tracked, k, v):
        if isinstance(tracked.cache, library.TurboQuantKVCache):
            raise Unsupported("no change of codes")
        if k.is_plain or high_and_low(k) or high_and_low(v):
            raise Unsupported("from_cache: codes of whole bits")
        seeds = self.checked(k, self.setup.k_dim, 0), self.checked(v, self.setup.v_dim, 1)
        if seeds[0] != seeds[1]:
            raise Unsupported("V has the signs of the seed after K's")
        bits = {"bits": max(k.bits, v.bits), "seed": seeds[0], "key_bits": k.bits, "value_bits": v.bits}
        kind = library.TurboQuantKVCache
        tracked.cache = kind.from_cache(tracked.cache, **bits) if tracked.cache.offset else kind(**bits)
        tracked.k, tracked.v = k, v

    def copy(self, tracked):
        if tracked.is_batch or not hasattr(tracked.cache, "bits"):
            raise Unsupported("no copy of batches, or of plain vectors")
        snapshot = tracked.cache.prefix_cache_snapshot()
        for name in ("keys", "values"):
            snapshot[name] = library._map_state(snapshot[name], lambda array, rank: mx.array(array))
        made = library.TurboQuantKVCache(tracked.cache.bits)
        made.prefix_cache_restore(snapshot)
        return tracked.like(made, 1)

    # ------------------------------------------------------------------------------------ attend
    def attend(self, tracked, step, q, scale, window, sinks):
        cache, x = tracked.cache, self.setup.x
        if self.known_k.taken or self.known_v.taken:
            raise Unsupported("a vector of this case was stored as the format leaves open, and kvcheck knows the definition's")
        mask = step.mask
        if window is not None and window < 1 and tracked.k.is_plain:
            raise Refused("a cache of plain vectors: mlx-lm's, and judged there")
        if window is not None:
            least = window if tracked.layout.window is None else min(window, tracked.layout.window)
            mask = base.create_attention_mask(Columns(q.shape[0], step.queries), tracked.before, window_size=least)
        if sinks is not None:
            sinks = mx.array(sinks).astype(q.dtype)
        keys, values = tracked.returned
        out = base.scaled_dot_product_attention(q, keys, values, cache=cache, scale=scale, mask=mask, sinks=sinks)
        rotated = not tracked.k.is_plain and sinks is None and step.queries == 1 and base._turboquant_attention_applies(cache)
        mx.eval(out, q)
        if rotated:
            plan = rotated_plan.plan(self.setup.k_dim, step.k[0].shape[2], x, scale, isinstance(mask, mx.array))
            self.declare(plan=plan, profile="decode=exact turboquant=mlx_vlm masked_row=mean mask_value=lowest")
        else:
            self.declare(plan=sdpa_plan(x, scale),
                         profile="decode=two_roundings turboquant=mlx_vlm masked_row=mean mask_value=lowest")
        return out

    # --------------------------------------------------------------------------------------- tell
    def retained(self, tracked):
        cache, s = tracked.cache, self.setup
        if cache.keys is None:
            shape = (tracked.rows, s.kv_heads, 0)
            parts = [tuple(np.zeros((*shape, plane.elements), {"u32": np.uint32, "f16": np.float16}.get(plane.kind, np.uint16))
                           for plane in fmt.planes(dim)) for fmt, dim in ((tracked.k, s.k_dim), (tracked.v, s.v_dim))]
            if tracked.k.is_plain:
                parts = [(np.zeros((*shape, dim), np.float32 if s.x == "f32" else np.uint16 if s.x == "bf16" else np.float16),)
                         for dim in (s.k_dim, s.v_dim)]
            return (*parts, np.zeros((tracked.rows, 0), bool))
        state = cache.state
        parts = [self.shown(known, fmt, part)
                 for known, fmt, part in ((self.known_k, tracked.k, state[0]), (self.known_v, tracked.v, state[1]))]
        columns = np.arange(parts[0][0].shape[2])[None]
        rows = parts[0][0].shape[0]  # told apart from those that the batch says it has (tell)
        padding = np.array((cache.left_padding.tolist() if tracked.is_batch else [0] * rows)[:rows]).reshape(-1, 1)
        return (*parts, columns >= padding)

    def tell(self, tracked):
        cache = tracked.cache
        state = {"k_format": tracked.k.text, "v_format": tracked.v.text, "empty": cache.empty(),
                 "trimmable": cache.is_trimmable()}
        if getattr(cache, "key_codec", None) is not None:
            state["k_format"] = text_of(cache.key_codec, cache.seed, self.setup.x)
            state["v_format"] = text_of(cache.value_codec, cache.seed + 1, self.setup.x)
        if tracked.is_batch:
            offsets = list(map(int, cache.offset.tolist()))
            state["rows"] = cache.batch_size if cache.keys is None else planes(cache.keys)[0].shape[0]
            state["unfed"] = [max(0, -n) for n in offsets]
        else:
            offsets = [cache.offset] * tracked.rows
            state["size"] = cache.size()
        state["offsets"] = [max(0, n) for n in offsets]
        if not tracked.k.is_plain and cache.keys is not None:
            state["live_bytes"] = cache.nbytes
            state["capacity_bytes"] = library._state_nbytes(cache.keys) + library._state_nbytes(cache.values)
        return state


ADAPTER = MlxVlm
