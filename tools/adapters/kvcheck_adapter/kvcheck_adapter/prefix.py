"""PrefixAdapter: the base class for a cache across requests (reference/prefix/contract.md). `start`, `open` and
`close` are needed, and `write` and `read`, or requests that do these themselves; every other operation that the engine
has is one more method, and one that is left out is answered with "unsupported".

What is done for the author (prefix_session.py): numbers of requests, arrays, exceptions as refusals, what the spaces
say is not there (fields of an identity or of the setup, operations), where files are saved.

A request below is whatever `open` returned first. K and V are numpy arrays (layers, kv_heads, tokens, channels) of the
setup's type, each in memory of its own; bf16 comes as uint16 (to_float32, from_float32).
"""
import math
from typing import NamedTuple

import numpy as np

from .base import Implementation, Unsupported
from .storage import STORED

FULL = "full"  # what `write` returns where there was no room, and nothing has changed


class PrefixSetup(NamedTuple):
    """What a case wishes for. The engine answers how it really is (Started)."""
    block_tokens: int
    capacity_tokens: int
    max_entries: int  # of kept prompts; 0: any number
    layers: int
    kv_heads: int
    k_dim: int
    v_dim: int
    x: str  # type of the vectors
    k: str  # formats of kept rows, as reference/README.md, 3.3
    v: str
    quantize_from: int  # prompts of at least so many tokens are kept in k and v, shorter ones as they are
    window: int  # tokens that odd layers see; 0: all

    @property
    def token_bytes(self):
        """Of one token's K and V in all layers, as vectors."""
        return self.layers * self.kv_heads * (self.k_dim + self.v_dim) * STORED[self.x].itemsize

    def no_rows(self):
        """(K, V) of no token."""
        return tuple(np.zeros((self.layers, self.kv_heads, 0, dim), STORED[self.x]) for dim in (self.k_dim, self.v_dim))

    @property
    def is_plain(self):
        return self.k == self.v == self.x


class Identity(NamedTuple):
    """Whose prompt it is; None where a field is absent. A cache that keeps all of it in its key needs no more: equal
    identities are equal, different ones are not."""
    model: str | None
    salt: str | None
    adapter: str | None
    version: int  # of the adapter's weights; 0: none
    image: str | None


class Started(NamedTuple):
    block_tokens: int  # of hits, as it really is; 1 of stores of snapshots
    capacity_tokens: int  # that requests and kept prompts may have together
    holds_requests: bool = True  # False: open requests do not count in it


class PrefixAdapter(Implementation):
    kinds = ("prefix",)
    prefix_profile = ""  # what the engine does differently on purpose: reference/README.md, section 3.6
    ids_alone = False  # True: a manager of blocks without content. `blocks` answers in place of `read`
    # May name "shapes" (of vectors that are written) and "counts" (of trim_to: negative, or more than there is).
    relies_on = frozenset()

    def start(self, setup, folder, again):
        """Returns Started. folder: for files, or None; again: whether what an earlier process has left there is
        expected. Requests and stores of before are gone."""
        raise NotImplementedError("no start")

    def open(self, tokens, who, all):
        """Looks the prompt up. Returns (request, hit), or (request, hit, "memory" or "disk"): the first `hit` tokens are
        there. tokens: a list of integers; who: Identity; all: whether the last token may hit too."""
        raise NotImplementedError("no open")

    def write(self, request, tokens, k, v):
        """K and V of the request's next tokens, whose ids these are. Returns FULL where there is no room for them. Left
        out, it is `request.append(tokens, k, v)`."""
        return own_method(request, "append", "no write")(tokens, k, v)

    def read(self, request):
        """(K, V) of every token that the request has, as the model would read them; or (K, V, retained), retained
        boolean (layers, tokens), where rows older than a window are gone. Left out, it is `request.rows()`."""
        return own_method(request, "rows", "rows cannot be shown")()

    def blocks(self, request):
        """Ids of the blocks that hold the request's tokens, -1 for one that is gone. None: there is nothing to show."""
        return None

    def close(self, request, keep):
        """The request ends; keep: others may find its tokens from now on."""
        raise NotImplementedError("no close")

    def fork(self, request):
        """A second request with the same tokens, which goes on alone."""
        raise Unsupported("no fork")

    def trim_to(self, request, tokens):
        """The request has its first `tokens` tokens alone."""
        raise Unsupported("requests are not trimmed")

    def evict(self, tokens):
        """Kept prompts that nobody holds go until there is room for so many tokens."""
        raise Unsupported("nothing is evicted on demand")

    def clear(self):
        """Everything that nobody holds is forgotten, in every tier."""
        raise Unsupported("no clear")

    def epoch(self):
        """The weights have changed: nothing of before may hit again."""
        raise Unsupported("no change of weights")

    def settle(self):
        """What is written in the background is written."""

    def save(self, path):
        """All that is kept, into this folder, which is new."""
        raise Unsupported("no files")

    def load(self, path):
        raise Unsupported("no files")

    def observe(self):
        """Some of entries, bytes, budget_bytes, blocks_total, blocks_free, blocks_cached, blocks_held, lookups, hits,
        hit_tokens: integers, as tools/process/protocol.md has them."""
        return {}


class CollectedPrompt:
    """A request whose rows are copies beside the engine: `append` and `rows` are what PrefixAdapter's write and read call.
    k, v: of the tokens that were found."""

    def __init__(self, who, tokens, k, v):
        self.who, self.tokens, self.k, self.v = who, list(tokens), k, v

    def append(self, tokens, k, v):
        self.tokens += tokens
        self.k, self.v = (np.concatenate(pair, axis=2) for pair in ((self.k, k), (self.v, v)))

    def rows(self):
        return self.k, self.v


def own_method(request, name, lacking):
    """The request's method. Errors: Unsupported, with the text, where it has none."""
    method = getattr(request, name, None)
    if method is None:
        raise Unsupported(lacking)
    return method


def whole_blocks(tokens, block_tokens):
    """Blocks that hold so many tokens."""
    return math.ceil(tokens / block_tokens)
