"""The caches, masks and attention of transformers before kvcheck.

Options:
    --cache dynamic|static|quanto|hqq|fp8   DynamicCache (the default), StaticCache, QuantizedCache with that backend
    --attention sdpa|eager                  masks and attention of that implementation (sdpa)
    --record-past                           DynamicCache.activate_past_recording(), so that sliding layers can be cropped
    --length N                              columns of a StaticCache (160)
    --bits N, --residual N                  of a QuantizedCache (4; 8); fp8 has neither
    --padding nan|zero                      what columns of padding hold: kvcheck's NaN (the default), or zeros, since a
                                            model feeds finite numbers there

    new        the cache for a configuration of one layer: full, sliding (ring) or chunked attention; linear:w is a full
               cache under a sliding mask
    append     create_causal_mask, create_sliding_window_causal_mask or create_chunked_causal_mask with the 2D mask that
               generate() keeps, then Cache.update
    trim       crop(-n), n as it was asked for; a sliding layer that says it cannot is taken to have given back nothing
    filter     reorder_cache for as many rows as there are, batch_repeat_interleave for rows repeated in order, else
               batch_select_indices
    extend, merge   DynamicCache(ddp_cache_data), the gathering that its documentation tells of: rows of one length
    extract    batch_select_indices of a copy; copy: copy.deepcopy, as the documentation of prefix caching does
    save, load torch.save and torch.load of the cache
    attend     ALL_ATTENTION_FUNCTIONS["sdpa"], or the eager function of modeling_llama, with the mask of the append

crop(-n) is documented to remove the newest n tokens of the layer, in which padding is a token like others, as it is for
get_seq_length; it returns nothing. Beyond the tokens of a row that is padded on the left it takes padding away, and only
the caller, whose two-dimensional mask it is, knows that. So such a count is no call that the library could answer for,
and is declined. Where the cache itself knows the padding and says how much it gave back (mlx_lm), it is asked.
"""
import argparse
import copy
import hashlib
import logging

import torch
import transformers
from transformers import masking_utils
from transformers.cache_utils import DynamicCache

import attention
import tracked_cache as caches
from tracked_cache import TrackedCache
from kvcheck_adapter import Adapter, Misfit, Refused, Unsupported
from kvcheck_adapter.torch_arrays import NAMES, TYPES, to_numpy, to_torch
from recognise import Recogniser

PLAIN = ["f32", "f16", "bf16"]
COMMON = ["new", "append", "copy", "save", "load", "damage", "attend", "drop"]
OPERATIONS = {"dynamic": [*COMMON, "trim", "filter", "extend", "merge", "extract"], "static": [*COMMON, "filter"],
              "quanto": [*COMMON, "trim", "filter"], "hqq": [*COMMON, "trim", "filter"],
              "fp8": [*COMMON, "trim", "filter"]}
MASKS = {"linear": masking_utils.create_causal_mask, "ring": masking_utils.create_sliding_window_causal_mask,
         "chunk": masking_utils.create_chunked_causal_mask}


QUANTIZERS = ("quanto", "hqq")
# Options of some caches alone: of which, and the least number.
BELONGS = {"length": (("static",), 1), "record_past": (("dynamic",), 0), "bits": (QUANTIZERS, 1),
           "residual": (QUANTIZERS, 0)}


def parsed(options):
    parser = argparse.ArgumentParser(prog="transformers", allow_abbrev=False)
    parser.add_argument("--cache", choices=OPERATIONS, default="dynamic")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--record-past", action="store_true", default=None)
    parser.add_argument("--length", type=int)
    parser.add_argument("--bits", type=int)
    parser.add_argument("--residual", type=int)
    parser.add_argument("--padding", choices=("nan", "zero"), default="nan")
    chosen = parser.parse_args(options)
    for name, (kinds, least) in BELONGS.items():
        value, shown = getattr(chosen, name), "--" + name.replace("_", "-")
        if value is not None and chosen.cache not in kinds:
            parser.error(f"{shown} belongs to --cache {' or '.join(kinds)}; this is --cache {chosen.cache}")
        if value is not None and value < least:
            parser.error(f"{shown} is at least {least}")
    for name, value in (("length", caches.STATIC_LENGTH), ("bits", 4), ("residual", 8)):
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    return chosen


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


class Transformers(Adapter):
    name = "transformers"
    version = f"{transformers.__version__} (torch {torch.__version__})"
    kinds = ("cache", "attention")
    # get_seq_length counts columns, is_croppable tells of a class, and a sliding layer may give back nothing.
    cache_profile = "size=columns trimmable=any trim=shorter"
    # "padding": "The attention mask should have the shape (batch_size, past_kv_length + new_tokens_length)" (its guide to
    # caching); the cache never gets it. "kinds", "single": ddp_cache_data is of "a layer gathered across replicas", so of one
    # configuration, and gathers batches ("global batch size").
    relies_on = frozenset({"padding", "kinds", "single"})
    file_suffix = ".pt"

    def __init__(self, *options):
        self.options = parsed(options)
        logging.getLogger("transformers").setLevel(logging.ERROR)
        if options:
            self.version += " " + " ".join(options)
        if self.options.cache == "static":  # StaticLayer "allocates its full backing tensors, and then mutates them in-place"
            self.relies_on = self.relies_on | {"results"}  # and update returns these ("the static dynamo address")
        self.quantized = self.options.cache not in ("dynamic", "static")
        self.spaces = [*self.cache_spaces(), *attention.spaces(self.options.attention)]
        self.recogniser = None

    def cache_spaces(self):
        layouts = ["linear", "linear:w"] if self.quantized else ["linear", "linear:w", "ring", "chunk"]
        common = {"kind": "cache", "layouts": layouts, "same_format": True, "stored_as_given": True, "rows": "any",
                  "padding": True, "window": False, "operations": OPERATIONS[self.options.cache],
                  "damages": ["truncate", "flip", "foreign"]}
        with_sinks = ["f32"] if self.options.attention == "eager" else []  # gpt-oss has them; sdpa has none
        parts = [(with_sinks, True), ([kind for kind in PLAIN if kind not in with_sinks], False)]
        return [{**common, "formats": kinds, "x": kinds, "sinks": sinks} for kinds, sinks in parts if kinds]

    # ------------------------------------------------------------------------------------- arrays
    def give(self, array, kind):
        if kind not in TYPES:
            raise Unsupported(f"no vectors of type {kind}")
        return to_torch(array, kind)

    def keep(self, array):
        return array.clone()

    def numpy(self, array):
        return to_numpy(array)

    # --------------------------------------------------------------------------------- operations
    def start(self, setup):
        if self.quantized:
            self.recogniser = Recogniser(self.options.bits if self.options.cache != "fp8" else None)

    def new(self, layout, k, v, rows, padding):
        if not k.text == v.text == self.setup.x:
            raise Unsupported("K and V are stored as they are given")
        if layout.keep:
            raise Unsupported("a sliding layer keeps no first tokens")
        return TrackedCache(caches.made(self.options, layout, self.setup), layout, k, v, padding or [0] * rows)

    def mask_of(self, tracked, queries):
        layout = tracked.layout
        window = layout.chunk if layout.kind == "chunk" else layout.window
        if layout.kind == "linear" and tracked.probe:
            window = None  # a full cache holds more than its window shows
        kind = "ring" if layout.kind == "linear" and window else layout.kind
        config = caches.mask_config_of(layout.kind, window, self.options.attention)
        embeds = torch.empty((len(tracked.padding), queries, 1), dtype=TYPES[self.setup.x])
        return MASKS[kind](config, embeds, tracked.attention_mask(queries), tracked.cache)

    def append(self, tracked, k, v):
        rows, _, queries, _ = k.shape
        if tracked.columns == 0:
            caches.check_first(tracked, self.setup, k, v)
        if self.options.cache == "static" and tracked.columns + queries > self.options.length:
            raise Unsupported(f"a static cache of {self.options.length} columns")
        if self.options.padding == "zero":
            k, v = torch.nan_to_num(k), torch.nan_to_num(v)
        recording = tracked.cache.is_recording_past(0)
        if recording and tracked.columns and not tracked.probe and not tracked.cropped:  # what was appended is accepted
            tracked.cache.crop(0)
        mask = self.mask_of(tracked, queries)
        keys, values = tracked.cache.update(k, v, 0)
        if keys.shape[-2] != values.shape[-2]:
            raise Misfit("k and v", f"K has {keys.shape[-2]} columns, V has {values.shape[-2]}")
        if mask is not None and mask.shape[-1] != keys.shape[-2]:
            raise Misfit("mask", f"the mask covers {mask.shape[-1]} columns, K and V have {keys.shape[-2]}")
        if recording and tracked.probe:  # what is recorded is retained, and not returned
            keys, values = tracked.cache.layers[0].keys, tracked.cache.layers[0].values
            mask = tracked.attention_mask(queries)[:, -keys.shape[-2]:].bool()[:, None, None]
        tracked.columns, tracked.cropped = tracked.columns + queries, False
        tracked.mask, tracked.types = mask, (NAMES[keys.dtype], NAMES[values.dtype])
        if self.recogniser:
            self.recogniser.learn(k, v)
            return *self.recogniser.recognised(keys, values), self.visible(mask, rows, queries, keys.shape[-2])
        return keys, values, self.visible(mask, rows, queries, keys.shape[-2])

    def visible(self, mask, rows, queries, columns):
        """As a boolean array. No mask: sdpa's is_causal, aligned at the top left, or everything for one query."""
        if mask is None:
            return None if queries == 1 else torch.ones(queries, columns).tril().bool()
        return mask if mask.dtype == torch.bool else mask == 0

    def trim(self, tracked, count):
        if count > min(tracked.tokens(), default=0) and (any(tracked.padding) or not tracked.padding):
            raise Unsupported("crop counts columns: more of them than the shortest row has tokens would be padding")
        try:
            tracked.cache.crop(-count)
        except RuntimeError as error:
            if count < 0 or "activate_past_recording" not in str(error):
                raise
            return 0
        tracked.cropped = True
        count = min(count, tracked.columns)  # crop tells nothing: what its caller takes to be gone
        tracked.columns -= count
        return count

    def rows_of_caller(self, tracked, rows):
        """An empty cache has no rows yet: how many there will be its caller knows."""
        if tracked.columns == 0 and any(not 0 <= row < len(tracked.padding) for row in rows):
            raise Refused("a row that its caller has not")

    def filter(self, tracked, rows):
        self.rows_of_caller(tracked, rows)
        indices = torch.tensor(rows, dtype=torch.long)
        before = len(tracked.padding)
        repeats = len(rows) // before if before else 0
        if len(rows) == before or self.options.cache == "static":
            if len(rows) != before:
                raise Unsupported("a static cache keeps its number of rows")
            tracked.cache.reorder_cache(indices)
        elif repeats > 1 and rows == [row for row in range(before) for _ in range(repeats)]:
            tracked.cache.batch_repeat_interleave(repeats)
        else:
            tracked.cache.batch_select_indices(indices)
        tracked.padding = [tracked.padding[row] for row in rows]

    def gathered(self, several):
        """As DataParallel's gathering has it: rows of one length, one after the other."""
        first = several[0]
        if first.columns == 0 or len({(tracked.columns, tracked.columns_held()) for tracked in several}) > 1:
            raise Unsupported("caches of different lengths are not gathered")
        data = [(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]), *parts[0][2:3])
                for parts in zip(*(tracked.cache for tracked in several))]
        data = [item if item[-1] is not None else item[:2] for item in data]
        return first.like(DynamicCache(ddp_cache_data=data), [n for tracked in several for n in tracked.padding])

    def extend(self, tracked, other):
        return self.gathered([tracked, other])

    def merge(self, several):
        return self.gathered(several)

    def extract(self, tracked, row):
        self.rows_of_caller(tracked, [row])
        cache = copy.deepcopy(tracked.cache)
        cache.batch_select_indices(torch.tensor([row]))
        padding = min(tracked.padding[row], tracked.columns)  # what was not fed is not extracted
        return tracked.like(cache, [padding])

    def copy(self, tracked):
        return tracked.like(copy.deepcopy(tracked.cache), list(tracked.padding))

    def probe_copy(self, tracked):
        try:
            made = tracked.like(caches.shallow(tracked.cache), list(tracked.padding))
        except AttributeError as error:
            if not tracked.damaged:
                raise
            raise ValueError(f"a cache from a damaged file: {error}") from None  # the library's, and no mistake here
        made.probe = True
        return made

    def save(self, tracked, path):
        torch.save(tracked.cache, path)
        self.saved_files[path] = tracked.like(None, list(tracked.padding)), digest(path)

    saved_files = {}

    def load(self, path):
        told, written = self.saved_files[path]
        try:
            made = told.like(torch.load(path, weights_only=False), list(told.padding))
        except ImportError as error:  # of a name in the file
            raise Refused(f"ImportError: {error}") from None
        made.damaged = digest(path) != written
        return made

    # ------------------------------------------------------------------------------------ attend
    def attend(self, tracked, step, q, scale, window, sinks):
        if window is not None:
            raise Unsupported("another window than the layer's: its mask is made before the append")
        if sinks is not None:
            sinks = torch.from_numpy(sinks)
        out, plan, profile = attention.attend(self.options.attention, q, step.k[0], step.v[0], tracked.mask, scale,
                                              sinks=sinks)
        self.declare(plan=plan, profile=profile)
        return out

    def tell(self, tracked):
        """Offsets by the library's count of columns, less the padding that its caller knows."""
        try:
            seen = int(tracked.cache.get_seq_length())
        except (AttributeError, IndexError, TypeError, ValueError):
            if not tracked.damaged:
                raise
            return {}  # anything may stand in the attributes of a cache from a damaged file
        state = {"offsets": [max(0, seen - n) for n in tracked.padding]}
        if seen == 0:
            state["empty"] = True
        if tracked.types is not None:
            state["k_format"], state["v_format"] = tracked.types
        if tracked.layout.text == "linear" and tracked.padding and not any(tracked.padding):
            state["size"] = seen
        return state

    # -------------------------------------------------------------------------------- other kinds
    def attention(self, fields, inputs):
        return attention.attention(self, self.options.attention, fields, inputs)


ADAPTER = Transformers
