#!/usr/bin/env python3
"""Writes tests/golden/fixture_stranger.h5: a file without the schema, as other programs write them.

    python3 tests/golden/make_fixture_stranger.py

Tensors that kvcheck reads (either byte order, h5py's half floats and booleans, bfloat16 as bits with
kv_dtype, dimension labels, compression) beside objects that it has to list with a reason.
"""

import os
import sys

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def main(path):
    values = np.arange(6).reshape(2, 3)
    with h5py.File(path, "w", libver=("earliest", "v110")) as f:
        f["little"] = values.astype("<f4")
        f["big"] = values.astype(">f4")
        f["layer/0/half"] = values.astype("<f2")
        f["layer/0/double_big"] = values.astype(">f8")
        f["int_big"] = values.astype(">i4")
        f["flags"] = values % 2 == 1
        f["bits"] = (values + 0x3F80).astype("<u2")
        f["bits"].attrs["kv_dtype"] = "bfloat16"
        f["labelled"] = values.astype("<f4")
        f["labelled"].dims[0].label = "L"
        f["labelled"].dims[1].label = "Dk"
        f["labelled_oddly"] = values.astype("<f4")
        f["labelled_oddly"].dims[0].label = "time"
        f.create_dataset("packed", data=values.astype("<f4"), compression="gzip", shuffle=True,
                         fletcher32=True)
        f["scalar"] = np.float32(1.5)
        f["empty"] = np.zeros((2, 0), "<f4")
        f["axes_of_a_stranger"] = values.astype("<f4")
        f["axes_of_a_stranger"].attrs["axes"] = "time step,"
        f["axes_twice"] = values.astype("<f4")
        f["axes_twice"].attrs["axes"] = "x,x"
        f["axes_odd"] = values.astype("<f4")
        f["axes_odd"].dims[0].label = "\x1b[31m"
        f["axes_odd"].dims[1].label = "y" * 33
        f["axes_of_32"] = values.astype("<f4")
        f["axes_of_32"].dims[1].label = "y" * 32
        f["axes_too_many"] = values.astype("<f4")
        f["axes_too_many"].attrs["axes"] = "a,b,c"
        f["axes_too_many"].dims[0].label = "row"
        f["axes_too_many"].dims[1].label = "column"
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((2, 3)),
                        compact).write(h5py.h5s.ALL, h5py.h5s.ALL, values.astype("<f4"))

        f["int16"] = values.astype("<i2")
        f["text"] = "a text"
        f["pair"] = np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")])
        f["texts"] = np.array(["a", "bc"], dtype=h5py.string_dtype())
        f["vlen"] = np.array([np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype("<i4"))
        f["enum"] = np.array([0, 1], dtype=h5py.enum_dtype({"NO": 0, "YES": 1}, "i1"))
        f.create_dataset("array_type", shape=(2,), dtype=np.dtype(("<f4", (3,))))
        f["complex"] = np.zeros(2, "<c8")
        f["opaque"] = np.zeros(2, "V3")
        f["reference"] = f["little"].ref
        f["uint64"] = values.astype("<u8")
        f["long_double"] = values.astype(np.longdouble)
        f["wrong_type"] = values.astype("<f4")
        f["wrong_type"].attrs["kv_dtype"] = "bfloat16"
        f["no_extents"] = h5py.Empty("<f4")
        f.create_dataset("lzf", data=values.astype("<f4"), compression="lzf")
        f.create_dataset("never_written", shape=(2, 3), dtype="<f4")
        f.create_dataset("chunks_missing", shape=(4, 4), chunks=(2, 2), dtype="<f4")[0, 0] = 1
        f.create_dataset("elsewhere", shape=(2, 3), dtype="<f4", external=[("/dev/null", 0, 24)])
        virtual = h5py.VirtualLayout((2, 3), "<f4")
        virtual[...] = h5py.VirtualSource(".", "little", (2, 3))
        f.create_virtual_dataset("virtual", virtual)
        f["rank9"] = np.zeros((1,) * 9, "<f4")
        f["soft"] = h5py.SoftLink("/little")
        f["external"] = h5py.ExternalLink("other.h5", "/x")
        f["z_again"] = f["little"]
        f["cycle/root"] = f["/"]
        f["named_type"] = np.dtype("<f4")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "fixture_stranger.h5"))
