"""A plain cache of blocks in numpy, as servers have them: a pool of blocks with counted references, found by a chain of
hashes, the oldest that nobody holds evicted first, and beneath it files that outlive the process."""
import collections
import hashlib
import io
import os
import pathlib

import numpy as np


class Block:
    """K and V of block_tokens tokens. Once it has a key others may find it, and it is not written any more."""

    def __init__(self, shapes, dtype):
        self.rows = tuple(np.zeros(shape, dtype) for shape in shapes)
        self.references, self.key, self.depth = 0, None, 0


class Files:
    """Blocks in a folder, one file each, named by key, with the SHA-256 of the key and what follows: a file under the
    name of another one is none."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)

    def put(self, key, depth, rows):
        data = io.BytesIO()
        np.savez(data, depth=depth, k=rows[0], v=rows[1])
        self.replace(key, self.digest(key, data.getvalue()) + data.getvalue())

    def digest(self, key, data):
        return hashlib.sha256(key.encode() + data).digest()

    def replace(self, name, data):
        """A reader meets the old file or the new one, whenever the process ends."""
        beside = self.folder / f"{name}.new"
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.folder / name)

    def get(self, key, shapes, dtype):
        """(depth, rows), or None where there is none that is whole."""
        try:
            data = (self.folder / key).read_bytes()
            if self.digest(key, data[32:]) != data[:32]:
                return None
            with np.load(io.BytesIO(data[32:]), allow_pickle=False) as parts:
                rows = (parts["k"], parts["v"])
                depth = int(parts["depth"])
        except (OSError, ValueError, KeyError, EOFError):
            return None
        fits = [part.shape for part in rows] == list(shapes) and all(part.dtype == dtype for part in rows)
        return (depth, rows) if fits else None

    def remove_blocks(self):
        for file in self.folder.iterdir():
            if file.name != "epoch":
                file.unlink(missing_ok=True)


class BlockCache:
    """Shapes: rows are K (layers, heads, tokens, k_dim) and V (layers, heads, tokens, v_dim)."""

    def __init__(self, setup, dtype, blocks, folder=None):
        self.setup, self.dtype, self.block_tokens = setup, dtype, setup.block_tokens
        self.shapes = [(setup.layers, setup.kv_heads, setup.block_tokens, dim) for dim in (setup.k_dim, setup.v_dim)]
        self.free = [Block(self.shapes, dtype) for _ in range(blocks)]
        self.total = blocks
        self.found_by = {}  # key -> block
        self.idle = collections.OrderedDict()  # key -> block that nobody holds, the oldest first
        self.files = Files(folder) if folder else None
        self.epoch = self.stored_epoch()

    # -------------------------------------------------------------------------------------------- keys
    def stored_epoch(self):
        try:
            return int((self.files.folder / "epoch").read_text()) if self.files else 0
        except (OSError, ValueError):
            return self.next_epoch_of_files(0)

    def next_epoch_of_files(self, least):
        """A number that no file was written under."""
        epoch = max(least, int.from_bytes(os.urandom(6), "little"))
        self.files.replace("epoch", str(epoch).encode())
        return epoch

    def root(self, who):
        s = self.setup
        text = repr((self.epoch, tuple(who), s.block_tokens, s.x, s.layers, s.kv_heads, s.k_dim, s.v_dim))
        return hashlib.sha256(text.encode()).hexdigest()

    def next_key(self, before, tokens):
        return hashlib.sha256(f"{before} {tuple(tokens)}".encode()).hexdigest()

    def keys(self, who, tokens):
        key = self.root(who)
        for start in range(0, len(tokens) - self.block_tokens + 1, self.block_tokens):
            key = self.next_key(key, tokens[start:start + self.block_tokens])
            yield key

    # -------------------------------------------------------------------------------------------- blocks
    def room(self):
        return len(self.free) + len(self.idle)

    def take(self):
        if not self.free:
            self.forget(next(iter(self.idle)))
        block = self.free.pop()
        block.references = 1
        return block

    def forget(self, key):
        """Of a block that nobody holds."""
        block = self.idle.pop(key)
        del self.found_by[key]
        block.key = None
        self.free.append(block)

    def hold(self, block):
        if block.references == 0:
            del self.idle[block.key]
        block.references += 1

    def release(self, block):
        block.references -= 1
        if block.references:
            return
        if block.key is None:
            self.free.append(block)
        else:
            self.idle[block.key] = block

    def publish(self, block, key, depth):
        if key in self.found_by:
            return  # computed twice: others find the first
        block.key, block.depth = key, depth
        self.found_by[key] = block
        if self.files:
            self.files.put(key, depth, block.rows)

    def find(self, key):
        """(block, whether it came from a file), held; (None, False)."""
        block = self.found_by.get(key)
        if block is not None:
            self.hold(block)
            return block, False
        stored = self.files.get(key, self.shapes, self.dtype) if self.files and self.room() else None
        if stored is None:
            return None, False
        block = self.take()
        block.depth = stored[0]
        for part, rows in zip(block.rows, stored[1]):
            part[:] = rows
        block.key = key
        self.found_by[key] = block
        return block, True

    # ------------------------------------------------------------------------------------- what a server calls
    def lookup(self, who, tokens, most):
        """The held blocks that `tokens` begin with, at most `most` tokens of them, and whether a file was read."""
        blocks, from_files = [], False
        for key in self.keys(who, tokens[:most]):
            block, from_file = self.find(key)
            if block is None:
                break
            blocks.append(block)
            from_files |= from_file
        return blocks, from_files

    def is_shared(self, block):
        """By a fork, or with those who find it: who writes on in it does so in a copy."""
        return block.references > 1 or block.key is not None

    def append(self, blocks, length, k, v):
        """Writes after `length` tokens. False: there is no room, and nothing has changed."""
        size, end = self.block_tokens, length + k.shape[2]
        copied = length % size and self.is_shared(blocks[-1])
        returned = bool(copied and blocks[-1].references == 1)
        if -(-end // size) - len(blocks) + bool(copied) > self.room() + returned:
            return False
        if copied:
            old = blocks.pop()
            rows = tuple(part.copy() for part in old.rows)
            self.release(old)
            blocks.append(self.take())
            for part, kept in zip(blocks[-1].rows, rows):
                part[:] = kept
        while len(blocks) * size < end:
            blocks.append(self.take())
        for token in range(length, end):
            for part, given in zip(blocks[token // size].rows, (k, v)):
                part[:, :, token % size] = given[:, :, token - length]
        return True

    def rows(self, blocks, length):
        return tuple(np.concatenate([block.rows[part] for block in blocks], axis=2)[:, :, :length] for part in (0, 1))

    def close(self, blocks, who, tokens, keep):
        if keep:
            for depth, (block, key) in enumerate(zip(blocks, self.keys(who, tokens))):
                if block.key is None:
                    self.publish(block, key, depth)
        for block in reversed(blocks):  # the end of a prompt is older than its beginning
            self.release(block)

    def evict(self, blocks):
        while len(self.free) < blocks and self.idle:
            self.forget(next(iter(self.idle)))

    def clear(self):
        if self.files:
            self.files.remove_blocks()
        for key in list(self.idle):
            self.forget(key)
        for block in self.found_by.values():  # held: they stay with who holds them
            block.key = None
        self.found_by.clear()

    def next_epoch(self):
        self.epoch = self.next_epoch_of_files(self.epoch + 1) if self.files else self.epoch + 1
        self.clear()

    def save(self, folder):
        files = Files(folder)
        for key, block in self.found_by.items():
            files.put(key, block.depth, block.rows)

    def load(self, folder):
        files = Files(folder)
        found = []
        for file in files.folder.iterdir():
            stored = files.get(file.name, self.shapes, self.dtype)
            if stored is not None and file.name not in self.found_by:
                found.append((stored[0], file.name, stored[1]))
        for depth, key, rows in sorted(found, key=lambda entry: entry[:2]):  # beginnings of prompts first
            if not self.room():
                return
            block = self.take()
            for part, stored in zip(block.rows, rows):
                part[:] = stored
            self.publish(block, key, depth)
            self.release(block)
