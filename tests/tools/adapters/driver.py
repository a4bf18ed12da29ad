"""The parent's side of the protocol, for tests and measurements: starts a command, sends requests, reads answers.

Knows the frames and nothing of what is right; kvcheck itself judges. Vectors have tokens of their own all the same, so
that a test can say which tokens it saw.
"""
import os
import select
import struct
import subprocess
import time

import msgpack
import numpy as np

STORED = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "u32": np.uint32, "b8": np.bool_, "u8": np.uint8}


class Gone(Exception):
    """The child ended, or said nothing within the limit."""


class Child:
    def __init__(self, command, limit_s=600, **options):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                        start_new_session=True, **options)
        self.limit_s = limit_s
        self.signs_of_life = 0
        self._buffer = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        try:
            self.process.wait(self.limit_s)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    def send(self, **request):
        payload = msgpack.packb(request)
        self.send_bytes(struct.pack("<Q", len(payload)) + payload)

    def send_bytes(self, data):
        self.process.stdin.write(data)

    def receive(self):
        while True:
            payload = self._frame()
            if payload:
                return msgpack.unpackb(payload)
            self.signs_of_life += 1

    def ask(self, **request):
        self.send(**request)
        return self.receive()

    def hello(self):
        return self.ask(do="hello", protocol=1, kvcheck="test")

    def _frame(self):
        length = struct.unpack("<Q", self._take(8))[0]
        assert length <= 64 << 20, f"a frame of {length} bytes"
        return self._take(length)

    def _take(self, count):
        end = time.monotonic() + self.limit_s
        stream = self.process.stdout
        while len(self._buffer) < count:
            ready, _, _ = select.select([stream], [], [], max(0, end - time.monotonic()))
            part = os.read(stream.fileno(), 1 << 20) if ready else None
            if not part:
                raise Gone("no answer within the limit" if part is None else f"ended with {self.process.wait()}")
            self._buffer += part
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def refuses(command):
    """What a command that ends with 2 before anything is asked of it says on stderr; None where it does not."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    return done.stderr if done.returncode == 2 else None


def to_wire(array, kind="f32"):
    return [kind, list(array.shape), array.tobytes()]


def from_wire(wired):
    kind, extents, data = wired
    return np.frombuffer(data, STORED[kind]).reshape(extents)


SETUP = {"kv_heads": 2, "query_heads": 4, "k_dim": 8, "v_dim": 8, "x": "f32", "growth_tokens": 4}


def token_rows(tokens, part, heads=2, dim=8):
    """(rows, heads, columns, dim) of token numbers (rows, columns): channel 0 is the token over 1024, the next two are
    head and part, all inside (-2, 2). A negative token is padding, NaN."""
    tokens = np.asarray(tokens)
    made = np.zeros((tokens.shape[0], heads, tokens.shape[1], dim), np.float32)
    made[..., 0] = (tokens / 1024)[:, None]
    made[..., 1] = np.arange(heads)[None, :, None] / 16
    made[..., 2] = part
    made[np.broadcast_to((tokens < 0)[:, None, :], made.shape[:3])] = np.nan
    return made


def append(child, cache, tokens, kind="f32", dim=8, **more):
    k, v = token_rows(tokens, 0, dim=dim), token_rows(tokens, 1, dim=dim)
    if kind == "f16":
        k, v = k.astype(np.float16), v.astype(np.float16)
    elif kind == "bf16":
        k, v = ((a.view(np.uint32) >> 16).astype(np.uint16) for a in (k, v))
    return child.ask(do="append", cache=cache, k=to_wire(k, kind), v=to_wire(v, kind), **more)


def shown_tokens(state):
    """Of the last query of each row, or of the next one where no query is shown: its tokens, in order."""
    keys = from_wire(state["k"][0])
    if state["queries"]:
        seen = from_wire(state["visible"])[:, -1]
    else:
        seen = from_wire(state["retained"])
    return [sorted(np.rint(keys[row, 0, seen[row], 0] * 1024).astype(int).tolist()) for row in range(len(seen))]
