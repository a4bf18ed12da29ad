"""A cache of transformers with what the library leaves to its caller: the padding that the two-dimensional attention
mask tells of, the columns fed so far, the model's configuration."""
import copy
import functools
import math

import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache, QuantizedCache, StaticCache

from kvcheck_adapter import Refused, Unsupported
from kvcheck_adapter.torch_arrays import TYPES

STATIC_LENGTH = 160  # columns of a static cache, where no option says another number


@functools.lru_cache(maxsize=256)
def config_of(kind, window, implementation):
    """A model of one layer. kind: of the layout; window: what it says, or None."""
    extra = {"ring": {"sliding_window": window}, "chunk": {"attention_chunk_size": window}}.get(kind, {})
    config = LlamaConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1, **extra)
    config._attn_implementation = implementation
    return config


@functools.lru_cache(maxsize=256)
def mask_config_of(kind, window, implementation):
    """What the mask is made of: linear:w is a full cache, as DynamicCache() makes it, under a sliding mask."""
    return config_of("ring" if kind == "linear" and window else kind, window, implementation)


class TrackedCache:
    __slots__ = ("cache", "layout", "k", "v", "padding", "columns", "mask", "probe", "types", "damaged", "cropped")

    def __init__(self, cache, layout, k, v, padding, columns=0):
        self.cache, self.layout, self.k, self.v = cache, layout, k, v
        self.padding = padding  # columns of each row that are no tokens, fed or not
        self.columns = columns  # fed, as the caller counts them
        self.mask = None  # of the last append, as attention gets it
        self.probe = False  # asked what it retains
        self.types = None  # of K and V as the last append returned them
        self.cropped = False  # since the last append
        self.damaged = False  # made of a file that is not as it was written

    def like(self, cache, padding, columns=None):
        made = TrackedCache(cache, self.layout, self.k, self.v, padding, self.columns if columns is None else columns)
        made.damaged, made.cropped = self.damaged, self.cropped
        return made

    def tokens(self):
        """Of each row."""
        return [max(0, self.columns - n) for n in self.padding]

    def columns_held(self):
        """Columns in the cache."""
        keys = self.cache.layers[0].keys
        return 0 if keys is None else keys.shape[-2]

    def attention_mask(self, queries):
        """What generate() keeps: one number per column, 1 for tokens, of all columns fed and those about to come."""
        total = self.columns + queries
        return (torch.arange(total)[None] >= torch.tensor(self.padding).reshape(-1, 1)).long()


def made(options, layout, setup):
    """An empty cache of the library."""
    window = layout.window if layout.kind == "ring" else layout.chunk
    config = config_of(layout.kind, window, options.attention)
    if options.cache == "dynamic":
        cache = DynamicCache(config=config)
        if options.record_past:
            cache.activate_past_recording()
        return cache
    if options.cache == "static":
        return StaticCache(config=config, max_cache_len=options.length)
    if layout.kind != "linear":
        raise Unsupported("QuantizedCache has layers with full attention alone")
    if options.cache == "fp8":
        return QuantizedCache("fp8", config)
    group = math.gcd(setup.k_dim, setup.v_dim)
    if group < 4:
        raise Unsupported("one group size for K and V, of at least 4 channels here")
    axis = 0 if options.cache == "quanto" else 1
    return QuantizedCache(options.cache, config, nbits=options.bits, axis_key=axis, axis_value=axis,
                          q_group_size=group, residual_length=options.residual)


def check_first(tracked, setup, k, v):
    """A cache learns its shape and type from what is appended first; until then its caller knows them."""
    rows, heads, columns, dim = k.shape
    if (rows != len(tracked.padding) or heads != setup.kv_heads or dim != setup.k_dim or k.dtype != TYPES[setup.x]
            or v.shape != (rows, heads, columns, setup.v_dim)):
        raise Refused("columns of another shape or type than the setup's")


def shallow(cache):
    """A copy that may be appended to: dynamic layers make new tensors at every update, static ones write in place."""
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    if isinstance(cache, StaticCache):
        for layer in copied.layers:
            for name in ("keys", "values", "cumulative_length"):
                if getattr(layer, name) is not None:
                    setattr(layer, name, getattr(layer, name).clone())
    return copied
