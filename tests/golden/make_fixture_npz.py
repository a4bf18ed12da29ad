#!/usr/bin/env python3
"""Writes fixture_numpy.npz, fixture_compressed.npz and fixture_fortran.npy beside this script.

    python3 tests/golden/make_fixture_npz.py      (numpy 2.4.6, ml_dtypes 0.5)

Files as numpy writes them: every type that kvcheck has, both byte orders, both orders of axes, a
scalar, an array without elements, types that numpy has no name for, and arrays that are not read:
objects, records, complex numbers, texts, nine axes.
"""

import os

import ml_dtypes
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    values = np.array([[1, 2, 4], [8, 16, 32]])
    arrays = {}
    for code in ("f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        arrays["little_" + code] = values.astype("<" + code)
        arrays["big_" + code] = values.astype(">" + code)
    arrays["b1"] = values > 4
    arrays["fortran"] = np.asfortranarray(np.arange(24, dtype="<i2").reshape(2, 3, 4))
    arrays["fortran_big"] = np.asfortranarray(np.arange(24, dtype=">i2").reshape(2, 3, 4))
    arrays["scalar"] = np.float32(1.5)
    arrays["vector"] = np.arange(3, dtype="<i4")
    arrays["empty"] = np.zeros((2, 0, 3), "<f4")
    arrays["bf16"] = values.astype(ml_dtypes.bfloat16)
    arrays["f8e4m3fn"] = values.astype(ml_dtypes.float8_e4m3fn)
    arrays["f8e5m2"] = values.astype(ml_dtypes.float8_e5m2)
    arrays["objects"] = np.array([{"a": 1}, None], dtype=object)
    arrays["records"] = np.zeros(2, [("a", "<f4"), ("b,)", "<i4", (2,))])
    arrays["complex"] = np.zeros(2, "c8")
    arrays["texts"] = np.array(["a", "bc"])
    arrays["rank9"] = np.zeros((1,) * 9, "<f4")
    np.savez(os.path.join(HERE, "fixture_numpy.npz"), **arrays)
    many = (np.arange(300_000, dtype="<i4") % 251).reshape(3, 100_000)
    np.savez_compressed(os.path.join(HERE, "fixture_compressed.npz"), many=many,
                        turned=np.asfortranarray(many.astype(">i4")), little_f4=values.astype("<f4"))
    np.save(os.path.join(HERE, "fixture_fortran.npy"),
            np.asfortranarray(np.arange(24, dtype=">f4").reshape(2, 3, 4)))


if __name__ == "__main__":
    main()
