#!/usr/bin/env python3
"""Writes tests/golden/fixture_python.h5, which tests/golden/round_trip_test.cc reads.

    python3 tests/golden/make_fixture_python.py

The file proves that golden/make/kvcheck_golden.py and golden/writer.h agree on the schema and on the
content hash: the C++ test builds the same content and expects the same hash. One tensor of every
storage type, of several ranks, empty ones, a chunked one and a deflated mask.
"""

import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "golden", "make"))
import kvcheck_golden as kg  # noqa: E402


def counting(dtype, shape):
    """Element i has the bytes of (17 i + 3) in the low byte, 0x3f in the high one."""
    storage = np.dtype(kg.STORAGE[dtype])
    count = int(np.prod(shape))
    data = np.zeros((count, storage.itemsize), np.uint8)
    data[:, 0] = (np.arange(count) * 17 + 3) % 256
    data[:, -1] = 0x3F if storage.itemsize > 1 else data[:, -1]
    if dtype == "bool":
        data &= 1
    return data.reshape(-1).view(storage).reshape(shape)


def main(path):
    with kg.Writer(path, source="fixture 1", command="make_fixture_python.py") as w:
        types = {}
        for i, dtype in enumerate(kg.STORAGE):
            types["t_" + dtype] = kg.Typed(counting(dtype, (1 + i % 3, 5)), dtype)
        w.case("types", "every storage type", inputs=types)
        w.case("ranks", "scalar, vector, empty \u2208 UTF-8", inputs={
            "scalar": np.array(1.5, "<f4"),
            "vector": np.array([1, -2, 3], "<i4"),
            "empty": np.zeros((2, 0, 3), "<f4"),
            "rank3": counting("float32", (2, 3, 4)),
        })
        c = w.case("attention-1.f32", "attn shape", inputs={
            "q": counting("float32", (1, 2, 3, 4)),
            "k": counting("float16", (1, 1, 5, 4)),
            "v": kg.Typed(counting("bfloat16", (1, 1, 5, 4)), "bfloat16"),
            "mask": counting("bool", (3, 5)).astype(np.bool_),
            "k_codes": kg.Typed(counting("uint32", (1, 1, 5, 2)), kv_format="affine:4:32"),
            "big": counting("float32", (3, 130, 70)),
        }, expected={"out": (counting("float64", (1, 2, 3, 4)), counting("float64", (1, 2, 3, 4))),
                     "lse": counting("float64", (1, 2, 3))})
        c.observed("lib", outputs={"out": counting("float32", (1, 2, 3, 4)),
                                   "lse": counting("float32", (1, 2, 3))},
                   implementation="lib.f", version="1", machine="AVX2, 1 thread", plan="p",
                   profile="", expect="PASS")
        c.observed("other", outputs={"out": counting("float16", (1, 2, 3, 4))},
                   implementation="other.g", version="2", expect="FAIL", reason="a finding")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "fixture_python.h5"))
