"""Frames on descriptors: 8 bytes length, little endian, then one MessagePack map. A frame of length 0 is a sign of life.

Reads and writes go to the descriptors themselves: one write an answer, and no buffer that a stray print could enter.
"""
import os
import struct
import time

import msgpack
import numpy as np

from .storage import STORED, name_of

LIMIT_BYTES = 64 << 20
_SIGN_OF_LIFE = bytes(8)
_LENGTH = struct.Struct("<Q").unpack_from
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
        self._buffer = b""  # what was read, and from where on it was not taken yet
        self._start = 0
        self._pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
        self._alive_after = time.monotonic() + _ALIVE_EVERY_S

    def _fill(self, count):
        """Waits until `count` bytes are there; False at the end of the input."""
        parts = [self._buffer[self._start:]]
        there = len(parts[0])
        while there < count:
            part = os.read(self._in, max(1 << 16, count - there))
            if not part:
                break
            parts.append(part)
            there += len(part)
        self._buffer = parts[0] if len(parts) == 1 else b"".join(parts)
        self._start = 0
        return there >= count

    def receive(self):
        """The next map, or None at the end of the input."""
        if len(self._buffer) - self._start < 8 and not self._fill(8):
            if self._buffer:
                raise ProtocolError("the input ends inside a frame")
            return None
        (length,) = _LENGTH(self._buffer, self._start)
        if length > LIMIT_BYTES:
            raise ProtocolError(f"a frame of {length} bytes is announced; the limit is {LIMIT_BYTES}")
        if len(self._buffer) - self._start < 8 + length and not self._fill(8 + length):
            raise ProtocolError("the input ends inside a frame")
        start = self._start + 8
        self._start = start + length
        message = msgpack.unpackb(memoryview(self._buffer)[start:start + length], raw=False)
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


def view_array(wired):
    """The same, read-only, over the bytes as they came."""
    kind, extents, data = wired
    return kind, np.frombuffer(data, STORED[kind]).reshape(extents), data


def encode_array(array, expected=None):
    return [name_of(array, expected), list(array.shape), array.tobytes()]
