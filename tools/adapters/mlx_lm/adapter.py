"""The caches, attention and codecs of mlx-lm, on the CPU, before kvcheck.

    new          KVCache, RotatingKVCache, QuantizedKVCache, ChunkedKVCache for one row without padding; BatchKVCache,
                 BatchRotatingKVCache for several rows or with it. A cache without rows is one of the last two, whose
                 rows come and go; the others are given the rows that they have from the first column on, which may be
                 several (evaluate.py) and are never none. ConcatenateKVCache with --cache=concatenate, in KVCache's place
    append       base.create_attention_mask, then update_and_fetch; for ChunkedKVCache what models/llama4.py does:
                 maybe_trim_front and a mask over [start_position, offset + N)
    prepare      prepare(lengths=, right_padding=), as generate.py does
    trim         trim_prompt_cache, the count as it was asked for: batches know the padding of their rows and answer with
                 a number, so they are tracked to it
    save, load   save_prompt_cache, load_prompt_cache; copy: copy.deepcopy
    filter, extend, prepare, extract of a cache of one row: the row becomes a batch first, by the library's merge, as
                 generate.py does; merge of batches of one row: extend. Batches of more rows have no merge
    attend       base.scaled_dot_product_attention with the library's mask for that window

What the library documents as its callers' duty is refused here (relies_on, with its source); whatever else is illegal is
put to it. Where the library counts otherwise on purpose: cache_profile. Options: --patched repairs the causes of FINDINGS.md
(patched.py, patched_edges.py), --repair NAME one of them alone; --fault NAME puts a fault into the library (faults.py), to see
whether it is found; --operations=NAME,... has cases drawn of these operations alone, beside new, append and drop;
--cache=concatenate offers that class alone; --bytes-of-empty asks empty caches for nbytes too, which a quantized one raises
at: every trace of quantized caches would end there.
"""
import argparse
import importlib.metadata

import package  # before anything of mlx_lm
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import base
from mlx_lm.models import cache as library

import attention
from tracked_cache import TrackedCache, deep, shallow
from kvcheck_adapter import Adapter, Refused, Unsupported
from kvcheck_adapter.mlx_arrays import NAMES, TYPES, to_mlx, to_numpy
from thread_affinity import ThreadAffinity


MLX, MLX_LM = importlib.metadata.version("mlx"), importlib.metadata.version("mlx-lm")
BATCHES = (library.BatchKVCache, library.BatchRotatingKVCache)
CLASSES = (library.KVCache, library.RotatingKVCache, library.QuantizedKVCache, library.ChunkedKVCache, *BATCHES)
ONE_SEQUENCE = {"concatenate": library.ConcatenateKVCache}  # classes that are asked for by name
PLAIN = list(TYPES)
ONE_ROW = ["new", "append", "finalize", "trim", "copy", "save", "load", "damage", "attend", "drop"]
BATCHED = [*ONE_ROW, "prepare", "filter", "extend", "merge", "extract"]


def cache_spaces():
    common = {"kind": "cache", "same_format": True, "stored_as_given": True, "x": PLAIN,
              "damages": ["truncate", "flip", "foreign"]}  # files of prompt caches have no version
    affine = [f"affine:{bits}:*" for bits in (2, 3, 4, 5, 6, 8)]
    return [
        {**common, "layouts": ["linear", "linear:w", "ring"], "formats": PLAIN, "rows": "any", "padding": True,
         "operations": BATCHED},
        {**common, "layouts": ["ring:keep"], "formats": PLAIN, "rows": "single", "padding": False,
         "operations": [*ONE_ROW, "merge"]},
        {**common, "layouts": ["chunk"], "formats": PLAIN, "rows": "any", "padding": False, "empty_batch": False,
         "operations": ONE_ROW},
        {**common, "layouts": ["linear", "linear:w"], "formats": [*PLAIN, *affine], "scales": "x", "rows": "single",
         "padding": False, "operations": [*ONE_ROW, "to_quantized"]},
    ]


def concatenate_spaces():
    return [{"kind": "cache", "same_format": True, "stored_as_given": True, "x": PLAIN, "formats": PLAIN,
             "damages": ["truncate", "flip", "foreign"], "layouts": ["linear", "linear:w"], "rows": "any",
             "padding": False, "operations": ONE_ROW}]


def llama4_mask(cache, queries):
    """models/llama4.py, LlamaModel.__call__."""
    start, offset = cache.start_position, cache.offset
    keys = mx.arange(start, offset + queries)
    positions = mx.arange(offset, offset + queries)[:, None]
    block = mx.abs((keys // cache.chunk_size) - (positions // cache.chunk_size))
    return (block == 0) & (keys <= positions)


class Columns:
    """All that base.create_attention_mask asks of hidden states."""
    __slots__ = ("shape",)

    def __init__(self, rows, columns):
        self.shape = (rows, columns, 1)


def mask_of(cache, rows, queries, window):
    if isinstance(cache, library.ChunkedKVCache):
        cache.maybe_trim_front()
        mask = llama4_mask(cache, queries)
        if window is not None:  # no caller in the library has both
            keys = mx.arange(cache.start_position, cache.offset + queries)
            mask &= keys > mx.arange(cache.offset, cache.offset + queries)[:, None] - window
        return mask
    return base.create_attention_mask(Columns(rows, queries), cache, window_size=window)


def batch_of(tracked):
    """The library's batch: the cache itself, or one made of it by merge."""
    if isinstance(tracked.cache, BATCHES):
        return tracked.cache
    if not hasattr(tracked.cache, "merge"):
        raise Unsupported(f"{type(tracked.cache).__name__} has no merge, so no batch can be made of it")
    return tracked.cache.merge([tracked.cache])


def pending_in_the_library(*several):
    """The library prepares nothing where no padding is announced (generate.py does not even call it), so nothing is
    illegal then; the contract has every prepared prefill pending."""
    if any(tracked.columns is not None and not tracked.padded for tracked in several):
        raise Refused("a prefill without padding is not pending in the library")


def same_window_where_callers_give_it(*several):
    """A linear cache knows no window: its callers give one with each call, and know which."""
    windows = {tracked.window for tracked in several if tracked.layout.kind == "linear"}
    if len(windows) > 1:
        raise Refused("linear caches under different windows, of which they know nothing")


class MlxLm(Adapter):
    name = "mlx-lm"
    version = f"{MLX_LM} (mlx {MLX})"
    kinds = ("cache", "attention", "codec")
    # Batches count columns with their padding, a window all that is held. nbytes is what is allocated. empty() means
    # that nothing was ever allocated; is_trimmable() tells of a class, or of a ring that is not full. A full ring gives
    # back nothing, even where all tokens could go.
    cache_profile = "size=columns bytes=capacity empty=any trimmable=any trim=shorter"
    profile = "decode=two_roundings encode=mlx_cpu"
    spaces = cache_spaces() + attention.spaces()
    # "padding": "left_padding specifies the amount of padding for each" prompt, BatchKVCache.__init__. "results": "the
    # cache will be updated in place", "old entries [...] will be overwritten", generate_step; and so will what a full
    # RotatingKVCache returned, for "in place updates will be reflected in all references to the same array", MLX's
    # Indexing Arrays. Nothing else is documented.
    relies_on = frozenset({"padding", "results"})
    lazy = True
    copies = True
    file_suffix = ".safetensors"

    def __init__(self, *options):
        mx.set_default_device(mx.cpu)
        parser = argparse.ArgumentParser(prog="mlx_lm", allow_abbrev=False)
        parser.add_argument("--patched", action="store_true")
        parser.add_argument("--repair", action="append", default=[])
        parser.add_argument("--fault", action="append", default=[])
        parser.add_argument("--operations", action="append", default=[])
        parser.add_argument("--cache", choices=sorted(ONE_SEQUENCE))
        parser.add_argument("--bytes-of-empty", action="store_true")
        chosen = parser.parse_args(options)
        self.bytes_of_empty, self.one_sequence = chosen.bytes_of_empty, ONE_SEQUENCE.get(chosen.cache)
        if self.one_sequence:
            self.spaces = concatenate_spaces() + attention.spaces()
        if len(chosen.operations) > 1:
            parser.error("--operations is given more than once")
        for text in chosen.operations:
            names = text.split(",")
            unknown = set(names) - {*BATCHED, "to_quantized"}
            if unknown:
                parser.error(f"no operation {', '.join(sorted(unknown))}")
            self.keep_operations(names)
        self.affinity = ThreadAffinity()
        if chosen.patched or chosen.repair:
            import patched
            import patched_edges
            unknown = set(chosen.repair) - {repair.__name__ for repair in (*patched.REPAIRS, *patched_edges.REPAIRS)}
            if unknown:
                parser.error(f"no repair {', '.join(sorted(unknown))}")
            patched.apply(chosen.repair)
            patched_edges.apply(chosen.repair)
        if chosen.patched:
            self.name, self.version = "mlx-lm-patched", f"{self.version}, patched"
        if chosen.fault:
            import faults
            faults.apply(chosen.fault)

    def keep_operations(self, names):
        wanted = {"new", "append", "drop", *names}
        self.spaces = [{**space, "operations": [name for name in space["operations"] if name in wanted]}
                       if space["kind"] == "cache" else space for space in self.spaces]

    # ------------------------------------------------------------------------------------- arrays
    def give(self, array, kind):
        if kind not in TYPES:
            raise Unsupported(f"no vectors of type {kind}")
        return to_mlx(array, kind)

    def keep(self, array):
        return mx.array(array)

    def ready(self, arrays, helds):
        self.affinity.follow()
        mx.eval(arrays, [tracked.cache.offset for tracked in helds])

    def numpy(self, array):
        return to_numpy(array)

    # --------------------------------------------------------------------------------- operations
    def start(self, setup):
        for kind in CLASSES:  # the step of capacity
            kind.step = setup.growth_tokens
        attention_kind = "mlx_cpu_sdpa"
        self.plan = f"base={attention_kind}_{setup.x}"

    def new(self, layout, k, v, rows, padding):
        x, single = self.setup.x, rows == 1 and not padding
        if k != v:
            raise Unsupported("K and V are stored in one format")
        if not rows and (layout.kind == "chunk" or not k.is_plain or self.one_sequence):
            raise Unsupported("a cache without rows of a class for one sequence")
        if not k.is_plain:
            if layout.kind != "linear" or any(padding):
                raise Unsupported("QuantizedKVCache is linear, without padding")
            if k.type != x:
                raise Unsupported("scales have the type of the vectors")
            if self.setup.k_dim % k.group or self.setup.v_dim % k.group:
                raise Refused("the group does not divide the channels")
            made = library.QuantizedKVCache(group_size=k.group, bits=k.bits)
        elif k.text != x:
            raise Unsupported("vectors are stored as they are given")
        elif self.one_sequence:
            if layout.kind != "linear" or any(padding):
                raise Unsupported(f"{self.one_sequence.__name__} is linear, without padding")
            made = self.one_sequence()
        elif layout.kind == "linear":
            made = library.KVCache() if single else library.BatchKVCache(padding or [0] * rows)
        elif layout.kind == "ring" and single:
            made = library.RotatingKVCache(layout.window, keep=layout.keep)
        elif layout.kind == "ring" and not layout.keep:
            made = library.BatchRotatingKVCache(layout.window, padding or [0] * rows)
        elif layout.kind == "chunk" and not any(padding):
            made = library.ChunkedKVCache(layout.chunk)
        else:
            raise Unsupported(f"no cache of layout {layout.text} for {rows} rows")
        return TrackedCache(made, layout, k, v, padding or [0] * rows)

    def append(self, tracked, k, v):
        rows, _, queries, _ = k.shape
        cache = tracked.cache
        if cache.keys is None:
            self.check_first(tracked, k, v)
        before = shallow(cache)
        mask = mask_of(cache, rows, queries, tracked.window)
        keys, values = cache.update_and_fetch(k, v)
        tracked.arrived(queries)
        tracked.before = before
        return keys, values, mask

    def check_first(self, tracked, k, v):
        """A cache learns its shape and type from what is appended first; until then its caller knows them."""
        s = self.setup
        rows, heads, columns, dim = k.shape
        if (rows != len(tracked.padding) or heads != s.kv_heads or dim != s.k_dim or k.dtype != TYPES[s.x]
                or v.shape != (rows, heads, columns, s.v_dim)):
            raise Refused("columns of another shape or type than the setup's")

    def prepare(self, tracked, lengths, columns):
        pending_in_the_library(tracked)
        if any(tracked.padding):
            raise Unsupported("lengths beside unfed left padding: no caller of the library mixes them")
        if columns < max(lengths, default=0):
            raise Unsupported("right padding is announced with lengths: fewer columns than tokens will follow")
        if not isinstance(tracked.cache, BATCHES):
            tracked.cache = batch_of(tracked)
        right_padding = [columns - n for n in lengths]
        tracked.cache.prepare(lengths=lengths, right_padding=right_padding)
        tracked.columns, tracked.fed, tracked.lengths, tracked.padded = columns, 0, lengths, max(right_padding, default=0) > 0

    def finalize(self, tracked):
        arrived = max(tracked.lengths, default=0) <= tracked.fed
        if not arrived:
            pending_in_the_library(tracked)
        if tracked.columns is not None and arrived and tracked.fed != tracked.columns:
            raise Unsupported(f"all tokens came, but {tracked.fed} of the {tracked.columns} columns that were announced")
        if hasattr(tracked.cache, "finalize"):
            tracked.cache.finalize()
        tracked.columns = None

    def trim(self, tracked, count):
        pending_in_the_library(tracked)
        return library.trim_prompt_cache([tracked.cache], count)

    def filter(self, tracked, rows):
        pending_in_the_library(tracked)
        if min(rows, default=0) < 0:
            raise Refused("rows are counted from the end, as Python does: the library takes them, and rightly")
        cache = batch_of(tracked)
        cache.filter(rows)
        tracked.cache = cache
        tracked.padding = [tracked.padding[row] if row < len(tracked.padding) else 0 for row in rows]

    def extend(self, tracked, other):
        pending_in_the_library(tracked, other)
        same_window_where_callers_give_it(tracked, other)
        cache = batch_of(tracked)
        cache.extend(cache if other is tracked else batch_of(other))
        tracked.cache = cache
        tracked.padding = tracked.padding + other.padding

    def merge(self, several):
        first = several[0]
        same_window_where_callers_give_it(*several)
        if any(len(tracked.padding) != 1 or tracked.columns is not None for tracked in several):
            raise Unsupported("batches have no merge: it takes caches of one sequence")
        if any(isinstance(tracked.cache, BATCHES) for tracked in several):
            made = deep(batch_of(first))
            for tracked in several[1:]:
                made.extend(deep(batch_of(tracked)))
        else:
            batch_of(first)
            made = first.cache.merge([tracked.cache for tracked in several])
        return first.like(made, [n for tracked in several for n in tracked.padding])

    def extract(self, tracked, row):
        pending_in_the_library(tracked)
        return tracked.like(batch_of(tracked).extract(row), [0])

    def to_quantized(self, tracked, k, v):
        if k != v or k.type != self.setup.x or k.is_plain:
            raise Unsupported("one affine format, with scales of the type of the vectors")
        if isinstance(tracked.cache, library.QuantizedKVCache):
            if (tracked.cache.bits, tracked.cache.group_size) != (k.bits, k.group):
                raise Refused("already quantized to another format")
        elif not hasattr(tracked.cache, "to_quantized"):
            raise Unsupported(f"{type(tracked.cache).__name__} has no to_quantized")
        else:  # generate.maybe_quantize_kv_cache leaves those alone that cannot be converted
            tracked.cache = tracked.cache.to_quantized(group_size=k.group, bits=k.bits)
        tracked.k, tracked.v = k, v

    def copy(self, tracked):
        if tracked.columns is not None:
            raise Refused("a deep copy of a pending prefill is one, in the library: the contract has none")
        return self.copied(tracked, deep(tracked.cache))

    def probe_copy(self, tracked):
        return self.copied(tracked, shallow(tracked.cache))

    def copied(self, tracked, cache):
        made = tracked.like(cache, list(tracked.padding))
        made.columns, made.fed = tracked.columns, tracked.fed
        return made

    def save(self, tracked, path):
        pending_in_the_library(tracked)
        library.save_prompt_cache(path, [tracked.cache])
        self.saved_files[path] = tracked.like(None, list(tracked.padding))

    saved_files = {}

    def file_changed(self, path, how, at):
        """A flipped bit stands in the arrays: one in the header that comes first is no longer JSON, or another name."""
        if how != "flip":
            return super().file_changed(path, how, at)
        with open(path, "rb") as file:
            data = bytearray(file.read())
        start = 8 + int.from_bytes(data[:8], "little")
        if start < len(data):
            data[start + at % (len(data) - start)] ^= 1 << (at % 8)
        return bytes(data)

    def load(self, path):
        (made,) = library.load_prompt_cache(path)
        mx.eval([part for _, part in tree_flatten(made.state) if isinstance(part, mx.array)])
        tracked = self.saved_files[path]
        return tracked.like(made, list(tracked.padding))

    # ------------------------------------------------------------------------------------ attend
    def attend(self, tracked, step, q, scale, window, sinks):
        cache, x = tracked.cache, self.setup.x
        if tracked.columns is not None:
            raise Refused("a prefill attends while it is pending, in the library: the contract has it at its end")
        quantized = isinstance(cache, library.QuantizedKVCache)
        if sinks is not None:
            if quantized or x != "f32":
                raise Unsupported("sinks are of the queries' type, and not there in quantized attention")
            sinks = mx.array(sinks)
        mask = step.mask
        if window is not None:
            if window < 1 and tracked.layout.kind == "chunk":
                raise Refused("no caller in the library has a window beside chunks")
            own = tracked.layout.window
            least = window if own is None else min(window, own)
            mask = mask_of(shallow(tracked.before), q.shape[0], step.queries, least)
        k, v = (step.k, step.v) if quantized else (step.k[0], step.v[0])
        out = base.scaled_dot_product_attention(q, k, v, cache=cache, scale=scale, mask=mask, sinks=sinks)
        mx.eval(out, q)
        plan = attention.quantized_plan if quantized else attention.sdpa_plan
        self.declare(plan=plan(x, scale), profile="decode=two_roundings masked_row=mean mask_value=lowest")
        return out

    # --------------------------------------------------------------------------------------- tell
    def tell(self, tracked):
        """Offsets while a prefill is pending are not told: right padding is counted in. Size: the base class says 0,
        which says that it cannot tell."""
        cache = tracked.cache
        kind = type(cache)
        state = {"k_format": tracked.k.text, "v_format": tracked.v.text, "empty": cache.empty(),
                 "trimmable": cache.is_trimmable()}
        if kind in (library.RotatingKVCache, library.BatchRotatingKVCache) and cache.max_size > 0:
            keep = getattr(cache, "keep", 0)
            state["layout"] = f"ring:w={cache.max_size}" + (f":keep={keep}" if keep else "")
        elif kind is library.ChunkedKVCache and cache.chunk_size > 0:
            state["layout"] = f"chunk:c={cache.chunk_size}"
        batched = kind in BATCHES
        rows = len(tracked.padding)
        if tracked.columns is None:
            offsets = list(map(int, cache.offset.tolist())) if batched else [cache.offset] * rows
            state["offsets"] = [max(0, n) for n in offsets]
            if tracked.window:  # a probe sees the window alone
                state["held"] = state["offsets"]
            elif kind is library.ChunkedKVCache:
                state["held"] = [max(0, cache.offset - max(0, cache.start_position))] * rows
            if batched:
                state["unfed"] = [max(0, -n) for n in offsets]
        if cache.keys is not None or self.bytes_of_empty:
            state["live_bytes"] = cache.nbytes
        if cache.keys is not None:
            if tracked.layout.text == "linear":
                state["capacity_bytes"] = state["live_bytes"]
            if kind is library.QuantizedKVCache:
                for name, parts in (("k_format", cache.keys), ("v_format", cache.values)):
                    state[name] = f"affine:{cache.bits}:g{cache.group_size}:{NAMES.get(parts[1].dtype, '?')}"
            else:
                state["k_format"], state["v_format"] = NAMES[cache.keys.dtype], NAMES[cache.values.dtype]
        if rows and kind.size is not library._BaseCache.size:
            held_tokens = cache.size()
            if held_tokens >= 0:  # a negative size is none
                state["size"] = held_tokens
        return state

    # -------------------------------------------------------------------------------- other kinds
    def attention(self, fields, inputs):
        return attention.attention(self, fields, inputs)

    def codec(self, fields, inputs):
        return attention.codec(fields, inputs)


ADAPTER = MlxLm
