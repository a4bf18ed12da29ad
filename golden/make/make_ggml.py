"""Makes ggml_iq4_nl.h5: what ggml's own C code writes into a KV cache of type iq4_nl, which gguf does not write, and reads.

Usage: python make_ggml.py SDIST [DIRECTORY]                    (default: ../data beside this file)
       python make_ggml.py --values COUNT SDIST [DIRECTORY]     COUNT values of every type in place of the stored rows, for
                                                                `kvcheck golden verify DIRECTORY/ggml_iq4_nl.h5`
Needs the packages of requirements-gguf.txt and a C compiler. SDIST is the source archive of ggml-python 0.0.45 (`pip download
--no-deps ggml-python==0.0.45`), whose folder vendor/ggml holds ggml 0.15.3. Its src/ggml-quants.c is compiled twice, by `cc`:
once rounding every operation, once with FMA where the compiler likes, which changes the last bit of some scales (`ggml_fma`;
of iq4_nl alone, because codes at ties of q4_0 and q5_0 change too). Caches are written by quantize_row_*_ref there, but for
q8_0 on x86 (ggml_encode=x86).
"""
import argparse
import ctypes
import pathlib
import re
import subprocess
import tarfile
import tempfile

import numpy as np

import ggml_blocks
import kvcheck_golden as kg
import machine
import make_gguf
import regimes

BUILDS = {"ggml": ("-ffp-contract=off",), "ggml_fma": ("-ffp-contract=fast", "-mavx2", "-mfma", "-mf16c")}
# What other files of ggml define, and none of these functions calls.
STUBS = "#include <stdlib.h>\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in (
    "ggml_abort", "ggml_row_size", "ggml_type_name", "ggml_type_size"))


def build(sdist, folder):
    """The libraries, and the version of ggml."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    root, = pathlib.Path(folder).glob("*/vendor/ggml")
    numbers = re.findall(r"set\(GGML_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)\)", (root / "CMakeLists.txt").read_text())
    (pathlib.Path(folder) / "stubs.c").write_text(STUBS)
    libraries = {}
    for name, options in BUILDS.items():
        path = pathlib.Path(folder) / f"{name}.so"
        subprocess.run(["cc", "-O2", *options, "-shared", "-fPIC", f"-I{root}/include", f"-I{root}/src", str(root / "src/ggml-quants.c"),
                        str(pathlib.Path(folder) / "stubs.c"), "-lm", "-o", str(path)], check=True)
        libraries[name] = ctypes.CDLL(str(path))
    return libraries, ".".join(numbers)


class Ggml:
    def __init__(self, library):
        self.library = library

    def _call(self, function, source, target, count):
        function = getattr(self.library, function)
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        function.restype = None
        function(source.ctypes.data, target.ctypes.data, count)
        return target

    def encode(self, name, rows):
        rows = np.ascontiguousarray(rows, np.float32)
        width = rows.shape[-1] // ggml_blocks.BLOCK * ggml_blocks.TYPES[name].block_bytes
        return self._call(f"quantize_row_{name}_ref", rows, np.zeros((len(rows), width), np.uint8), rows.size)

    def decode(self, name, blocks):
        width = blocks.shape[-1] // ggml_blocks.TYPES[name].block_bytes * ggml_blocks.BLOCK
        out = np.zeros((len(blocks), width), np.float32)
        return self._call(f"dequantize_row_{name}", np.ascontiguousarray(blocks), out, out.size)


def add(writer, label, name, kind, x, libraries, version):
    """x: as stored in `kind`."""
    rows = regimes.widen(x, kind).astype(np.float32)
    given = {"x": regimes.typed(x, kind)}
    blocks = Ggml(libraries["ggml"]).encode(name, rows)
    stored = {"blocks": kg.Typed(blocks, "uint8", kv_format=name)}
    encode = writer.case(f"encode.{label}", make_gguf.text_of("encode", name, kind, x), given)
    decode = writer.case(f"decode.{label}", make_gguf.text_of("decode", name, kind, x), stored)
    for build_name, library in libraries.items():
        ggml = Ggml(library)
        record = dict(version=f"ggml {version}, cc {' '.join(BUILDS[build_name])}", machine=machine.describe())
        written = {"blocks": kg.Typed(ggml.encode(name, rows), "uint8", kv_format=name)}
        encode.observed(build_name, written, implementation=f"quantize_row_{name}_ref", **record)
        decoded = regimes.typed(ggml.decode(name, blocks), "f32")
        decode.observed(build_name, {"y": decoded}, implementation=f"dequantize_row_{name}", **record)


def between_halves(libraries, rng):
    """A row of blocks (1, 128) whose scales the two builds store as neighbours in f16."""
    x = rng.standard_normal((1 << 17, 32)).astype(np.float32)
    plain, fused = (Ggml(library).encode("iq4_nl", x) for library in libraries.values())
    return x[np.flatnonzero((plain != fused).any(-1))[:4]].reshape(1, 128)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sdist")
    parser.add_argument("directory", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent / "data")
    parser.add_argument("--values", type=int)
    options = parser.parse_args()
    path = pathlib.Path(options.directory) / "ggml_iq4_nl.h5"
    with tempfile.TemporaryDirectory() as folder:
        libraries, version = build(options.sdist, folder)
        plain = {"ggml": libraries["ggml"]}
        with kg.Writer(str(path), source=f"ggml {version}", command="python golden/make/make_ggml.py SDIST") as writer:
            if options.values:
                for name in ggml_blocks.TYPES:
                    add(writer, f"{name}.many", name, "f32", make_gguf.many(name, options.values),
                        libraries if name == "iq4_nl" else plain, version)
            else:
                for kind in ("f32", "f16", "bf16"):
                    rows = regimes.codec_rows(kind, 4, 128, regimes.generator(f"ggml.iq4_nl.{kind}"), make_gguf.FAMILIES)
                    add(writer, f"iq4_nl.{kind}", "iq4_nl", kind, rows, libraries, version)
                rows = between_halves(libraries, regimes.generator("ggml.iq4_nl.between"))
                add(writer, "iq4_nl.between", "iq4_nl", "f32", rows, libraries, version)
    print(path)


if __name__ == "__main__":
    main()
