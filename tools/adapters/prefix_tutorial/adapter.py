"""The prefix cache of tools/adapters/prefix_tutorial.md: whole prompts, found by their tokens and by whose they are."""
from types import SimpleNamespace

import numpy as np
from kvcheck_adapter import PrefixAdapter, Started


class PromptStore:
    """Keeps (K, V) of prompts, each (layers, heads, tokens, channels); the oldest go where there are too many tokens."""

    def __init__(self, most_tokens):
        self.most_tokens, self.kept = most_tokens, {}

    def longest(self, who, tokens):
        lengths = [n for n in range(1, len(tokens) + 1) if (who, tuple(tokens[:n])) in self.kept]
        return self.kept[who, tuple(tokens[:lengths[-1]])] if lengths else None

    def keep(self, who, tokens, rows):
        self.kept[who, tuple(tokens)] = rows
        while sum(len(kept) for _, kept in self.kept) > self.most_tokens:
            del self.kept[next(iter(self.kept))]


class PrefixTutorial(PrefixAdapter):
    name, version = "prefix-tutorial", "1"
    prefix_profile = "grain=token last=always partial=prefix"
    spaces = [{"kind": "prefix", "quantizes": False, "windows": False, "entries": False, "disk": False, "tiers": False,
               "operations": ["open", "write", "read", "close", "clear"]}]
    relies_on = {"shapes"}  # a model's vectors have one shape

    def start(self, setup, folder, again):
        self.setup, self.store = setup, PromptStore(setup.capacity_tokens)
        return Started(1, setup.capacity_tokens, holds_requests=False)

    def open(self, tokens, who, all):
        rows = self.store.longest(who, tokens) or self.setup.no_rows()
        hit = rows[0].shape[2]
        return SimpleNamespace(who=who, tokens=tokens[:hit], rows=rows), hit

    def write(self, request, tokens, k, v):
        request.tokens += tokens
        request.rows = [np.concatenate(pair, axis=2) for pair in zip(request.rows, (k, v))]

    def read(self, request):
        return request.rows

    def close(self, request, keep):
        if keep and request.tokens:
            self.store.keep(request.who, request.tokens, request.rows)

    def clear(self):
        self.store.kept.clear()
