"""Frames on descriptors: 8 bytes length, little endian, then one MessagePack map. A frame of length 0 is a sign of life.

Reads and writes go to the descriptors themselves: one write an answer, and no buffer that a stray print could enter.
"""
import os
import time

import msgpack
import numpy as np

from .storage import STORED, name_of

LIMIT_BYTES = 64 << 20
_SIGN_OF_LIFE = bytes(8)
_ALIVE_EVERY_S = 0.5


class ProtocolError(Exception):
    """What came is no frame of the protocol; nothing that follows can be understood."""


def claim_stdout():
    """Takes the stream of frames away from descriptor 1, which from now on is descriptor 2: prints of a library, of
    C code too, cannot break the stream. Returns the descriptor to write to."""
    out = os.dup(1)
    os.dup2(2, 1)
    return out


class Stream:
    def __init__(self, read_from, write_to):
        self._in, self._out = read_from, write_to
        self._buffer = bytearray()
        self._start = 0  # of what was not taken yet
        self._pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
        self._alive_after = time.monotonic() + _ALIVE_EVERY_S

    def _fill(self, count):
        """Waits until `count` bytes are there; False at the end of the input."""
        if self._start and len(self._buffer) - self._start < count:
            del self._buffer[:self._start]
            self._start = 0
        while len(self._buffer) - self._start < count:
            part = os.read(self._in, max(1 << 16, count - len(self._buffer)))
            if not part:
                return False
            self._buffer += part
        return True

    def receive(self):
        """The next map, or None at the end of the input."""
        if not self._fill(8):
            if len(self._buffer) > self._start:
                raise ProtocolError("the input ends inside a frame")
            return None
        start = self._start
        length = int.from_bytes(self._buffer[start:start + 8], "little")
        if length > LIMIT_BYTES:
            raise ProtocolError(f"a frame of {length} bytes is announced; the limit is {LIMIT_BYTES}")
        if not self._fill(8 + length):
            raise ProtocolError("the input ends inside a frame")
        start = self._start + 8
        self._start = start + length
        message = msgpack.unpackb(bytes(memoryview(self._buffer)[start:start + length]), raw=False)
        if self._start == len(self._buffer):
            self._buffer.clear()
            self._start = 0
        if not isinstance(message, dict):
            raise ProtocolError(f"a frame holds a {type(message).__name__} in place of a map")
        return message

    def pack(self, value):
        return self._pack(value)

    def send(self, payload):
        """Writes one packed map as a frame."""
        if len(payload) > LIMIT_BYTES:
            raise ProtocolError(f"an answer of {len(payload)} bytes exceeds the frame's limit of {LIMIT_BYTES}")
        self._write(len(payload).to_bytes(8, "little") + payload)

    def alive(self):
        """Says that work goes on, at most twice a second."""
        now = time.monotonic()
        if now >= self._alive_after:
            self._write(_SIGN_OF_LIFE)
            self._alive_after = now + _ALIVE_EVERY_S

    def _write(self, data):
        written = os.write(self._out, data)
        while written < len(data):
            written += os.write(self._out, memoryview(data)[written:])


def decode_array(wired):
    """(type's name, writable array of its own memory, the bytes as they came) of [type, extents, bytes]."""
    kind, extents, data = wired
    return kind, np.frombuffer(data, STORED[kind]).reshape(extents).copy(), data


def encode_array(array, expected=None):
    return [name_of(array, expected), list(array.shape), array.tobytes()]
