"""A plain numpy cache of blocks before kvcheck, with everything that a prefix adapter can say; block_cache.py is it.

Options, for tests: --broken RULE takes one rule away: `salt` from the key, `chain` of hashes, `pin` of what is read,
`copy` of a shared block, `epoch` from the key. Three after public reports of engines: `table`, the blocks of a request that
has found some are read in the order of the pool; `chunk`, blocks of a later write are named as if the prompt began with it;
`counted`, a request that waits for room counts what it has found again, as stored, and stores less.
"""
import argparse

from block_cache import BlockCache
from kvcheck_adapter import FULL, PrefixAdapter, Started, whole_blocks
from kvcheck_adapter.storage import STORED


def broken(rule):
    """BlockCache without one of its rules."""
    class Broken(BlockCache):
        def root(self, who):
            return super().root(who._replace(salt=None) if rule == "salt" else who)

        def next_key(self, before, tokens):
            return super().next_key("" if rule == "chain" else before, tokens)

        def hold(self, block):
            if rule != "pin":
                super().hold(block)

        def release(self, block):
            if rule != "pin" or block.references > 0:
                super().release(block)

        def is_shared(self, block):
            return rule != "copy" and super().is_shared(block)

        def next_epoch(self):
            before = self.epoch
            super().next_epoch()
            if rule == "epoch":
                self.epoch = before
    return Broken


class BlocksOfThePool(BlockCache):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.pool = self.free[::-1]

    def rows(self, blocks, length):
        return super().rows(self.pool[:len(blocks)] if blocks[0].key else blocks, length)


class NamesFromTheChunk(BlockCache):
    def append(self, blocks, length, k, v):
        has = len(blocks)
        if not super().append(blocks, length, k, v):
            return False
        for block in blocks[has:]:
            block.first = has
        return True

    def close(self, blocks, who, tokens, keep):
        keys = list(self.keys(who, tokens)) if keep else []
        for depth, block in enumerate(blocks[:len(keys)]):
            if block.key is None:
                self.publish(block, keys[depth - block.first], depth)
        super().close(blocks, who, tokens, False)


class CountedAgain(BlockCache):
    def append(self, blocks, length, k, v):
        if super().append(blocks, length, k, v):
            return True
        if blocks:
            blocks[0].waited = getattr(blocks[0], "waited", 0) + 1
        return False

    def close(self, blocks, who, tokens, keep):
        found = sum(block.key is not None for block in blocks)
        skipped = found * getattr(blocks[0], "waited", 0) if blocks else 0
        for depth, (block, key) in enumerate(zip(blocks, self.keys(who, tokens) if keep else ())):
            if block.key is None and depth >= found + skipped:
                self.publish(block, key, depth)
        if blocks:
            blocks[0].waited = 0
        super().close(blocks, who, tokens, False)


OF_REPORTS = {"table": BlocksOfThePool, "chunk": NamesFromTheChunk, "counted": CountedAgain}


class Request:
    def __init__(self, who, tokens, blocks, epoch):
        self.who, self.tokens, self.blocks, self.epoch = who, tokens, blocks, epoch


class NumpyPrefix(PrefixAdapter):
    name, version = "numpy-prefix", "1"
    prefix_profile = "persists=close evict=lru"
    spaces = [{"kind": "prefix", "quantizes": False, "windows": False, "entries": False}]
    relies_on = {"shapes", "counts"}

    def __init__(self, *options):
        parser = argparse.ArgumentParser(prog="numpy_prefix", allow_abbrev=False)
        parser.add_argument("--broken", choices=["salt", "chain", "pin", "copy", "epoch", *OF_REPORTS])
        rule = parser.parse_args(options).broken
        self.made_of = OF_REPORTS.get(rule) or (broken(rule) if rule else BlockCache)

    def start(self, setup, folder, again):
        self.setup = setup
        blocks = setup.capacity_tokens // setup.block_tokens
        self.cache = self.made_of(setup, STORED[setup.x], blocks, folder)
        self.lookups = self.hits = self.hit_tokens = 0
        return Started(setup.block_tokens, blocks * setup.block_tokens)

    def open(self, tokens, who, all):
        blocks, from_files = self.cache.lookup(who, tokens, len(tokens) - (not all))
        hit = len(blocks) * self.setup.block_tokens
        self.lookups, self.hits, self.hit_tokens = self.lookups + 1, self.hits + (hit > 0), self.hit_tokens + hit
        return Request(who, tokens[:hit], blocks, self.cache.epoch), hit, "disk" if from_files else "memory"

    def write(self, request, tokens, k, v):
        if not self.cache.append(request.blocks, len(request.tokens), k, v):
            return FULL
        request.tokens += tokens
        return None

    def read(self, request):
        return self.cache.rows(request.blocks, len(request.tokens)) if request.tokens else self.setup.no_rows()

    def close(self, request, keep):
        keep = keep and request.epoch == self.cache.epoch
        self.cache.close(request.blocks, request.who, request.tokens, keep)

    def fork(self, request):
        for block in request.blocks:
            self.cache.hold(block)
        return Request(request.who, list(request.tokens), list(request.blocks), request.epoch)

    def trim_to(self, request, tokens):
        keep = whole_blocks(tokens, self.setup.block_tokens)
        for block in reversed(request.blocks[keep:]):
            self.cache.release(block)
        del request.blocks[keep:], request.tokens[tokens:]

    def evict(self, tokens):
        self.cache.evict(whole_blocks(tokens, self.setup.block_tokens))

    def clear(self):
        self.cache.clear()

    def epoch(self):
        self.cache.next_epoch()

    def save(self, path):
        self.cache.save(path)

    def load(self, path):
        self.cache.load(path)

    def observe(self):
        cached, free, total = len(self.cache.idle), len(self.cache.free), self.cache.total
        block_bytes = self.setup.token_bytes * self.setup.block_tokens
        return {"blocks_total": total, "blocks_free": free, "blocks_cached": cached, "blocks_held": total - free - cached,
                "bytes": (total - free) * block_bytes, "budget_bytes": total * block_bytes, "lookups": self.lookups,
                "hits": self.hits, "hit_tokens": self.hit_tokens}
