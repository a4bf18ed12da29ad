"""A cache of mlx-lm with what the library leaves to its callers to remember: the layout asked for (a window is given to
make_mask, not to the cache), padding still to be fed, the columns of a prepared prefill."""
import copy

import mlx.core as mx


class TrackedCache:
    __slots__ = ("cache", "layout", "k", "v", "padding", "columns", "fed", "lengths", "padded",
                 "before")

    def __init__(self, cache, layout, k, v, padding):
        self.cache, self.layout, self.k, self.v = cache, layout, k, v
        self.padding = padding  # columns still to be fed, per row
        self.columns = None  # announced by prepare
        self.fed = 0  # since then
        self.lengths = []  # announced with them
        self.padded = False  # whether they are more than the longest row has
        self.before = None  # the cache as it was before the last append, for masks under another window

    def like(self, cache, padding):
        return TrackedCache(cache, self.layout, self.k, self.v, padding)

    def arrived(self, columns):
        self.fed += columns
        if any(self.padding):
            self.padding = [max(0, n - columns) for n in self.padding]

    @property
    def window(self):
        return self.layout.window if self.layout.kind == "linear" else None


def wrapped(value):
    if isinstance(value, mx.array):
        return mx.array(value)
    if isinstance(value, (tuple, list)):
        return type(value)([wrapped(part) for part in value])
    return value


def shallow(cache):
    """A copy whose arrays are objects of their own over the same data: assignment through one (`keys[..., a:b, :] = x`,
    `padding += n`) gives that object other data and leaves the other as it is."""
    made = object.__new__(type(cache))
    for name, value in cache.__dict__.items():
        made.__dict__[name] = value if value is None or type(value) is int else wrapped(value)
    return made


def deep(cache):
    """What mlx-lm does to have a cache twice (LRUPromptCache)."""
    return copy.deepcopy(cache)
