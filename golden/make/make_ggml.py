"""Makes ggml_blocks.h5: what ggml's own C code writes into a KV cache where gguf does not say it, and reads: iq4_nl, which gguf
does not write, and q8_0 by the vector code of x86 (ggml_encode=x86), where gguf follows the C reference.

Usage: python make_ggml.py SDIST [DIRECTORY]                    (default: ../data beside this file)
       python make_ggml.py --values COUNT SDIST [DIRECTORY]     COUNT values of every type in place of the stored rows, for
                                                                `kvcheck golden verify DIRECTORY/ggml_blocks.h5`
Needs the packages of requirements-gguf.txt and a C compiler. SDIST is the source archive of ggml-python 0.0.45 (`pip download
--no-deps ggml-python==0.0.45`), whose folder vendor/ggml holds ggml 0.15.3. Its src/ggml-quants.c is compiled twice, by `cc`:
once rounding every operation, once with FMA where the compiler likes, which changes the last bit of some scales (`ggml_fma`;
of iq4_nl alone, because codes at ties of q4_0 and q5_0 change too). Caches are written by quantize_row_*_ref there, but for
q8_0, which src/ggml-cpu/arch/x86/quants.c writes (`ggml_x86`; so an x86 machine with AVX2 is needed).
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

VECTORS = ("-mavx2", "-mfma", "-mf16c")
QUANTS, X86_QUANTS = "src/ggml-quants.c", "src/ggml-cpu/arch/x86/quants.c"
BUILDS = {"ggml": (QUANTS, "-ffp-contract=off"), "ggml_fma": (QUANTS, "-ffp-contract=fast", *VECTORS),
          "ggml_x86": (X86_QUANTS, "-ffp-contract=off", *VECTORS)}
# What other files of ggml define, and none of these functions calls.
STUBS = "#include <stdlib.h>\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in (
    "ggml_abort", "ggml_row_size", "ggml_type_name", "ggml_type_size", "ggml_table_f32_e8m0_half", "ggml_table_f32_f16"))


def build(sdist, folder):
    """The libraries, and the version of ggml."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    root, = pathlib.Path(folder).glob("*/vendor/ggml")
    numbers = re.findall(r"set\(GGML_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)\)", (root / "CMakeLists.txt").read_text())
    (pathlib.Path(folder) / "stubs.c").write_text(STUBS)
    libraries = {}
    include = [f"-I{root / part}" for part in ("include", "src", "src/ggml-cpu")]
    for name, (source, *options) in BUILDS.items():
        path = pathlib.Path(folder) / f"{name}.so"
        sources = [str(root / source), str(pathlib.Path(folder) / "stubs.c")]
        if source != QUANTS:
            sources.append(str(root / QUANTS))  # which it calls
        subprocess.run(["cc", "-O2", *options, "-shared", "-fPIC", *include, *sources, "-lm", "-o", str(path)], check=True)
        libraries[name] = ctypes.CDLL(str(path))
    return libraries, ".".join(numbers)


class Ggml:
    def __init__(self, build_name, library):
        self.library = library
        self.writer = "quantize_row_{}" if build_name == "ggml_x86" else "quantize_row_{}_ref"

    def _call(self, function, source, target, count):
        function = getattr(self.library, function)
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        function.restype = None
        function(source.ctypes.data, target.ctypes.data, count)
        return target

    def encode(self, name, rows):
        rows = np.ascontiguousarray(rows, np.float32)
        width = rows.shape[-1] // ggml_blocks.BLOCK * ggml_blocks.TYPES[name].block_bytes
        return self._call(self.writer.format(name), rows, np.zeros((len(rows), width), np.uint8), rows.size)

    def decode(self, name, blocks):
        width = blocks.shape[-1] // ggml_blocks.TYPES[name].block_bytes * ggml_blocks.BLOCK
        out = np.zeros((len(blocks), width), np.float32)
        return self._call(f"dequantize_row_{name}", np.ascontiguousarray(blocks), out, out.size)


def add(writer, label, name, kind, x, libraries, version):
    """x: as stored in `kind`."""
    rows = regimes.widen(x, kind).astype(np.float32)
    given = {"x": regimes.typed(x, kind)}
    first = next(iter(libraries))
    blocks = Ggml(first, libraries[first]).encode(name, rows)
    stored = {"blocks": kg.Typed(blocks, "uint8", kv_format=name)}
    encode = writer.case(f"encode.{label}", make_gguf.text_of("encode", name, kind, x), given)
    decode = writer.case(f"decode.{label}", make_gguf.text_of("decode", name, kind, x), stored)
    for build_name, library in libraries.items():
        ggml = Ggml(build_name, library)
        profile = "ggml_encode=x86" if build_name == "ggml_x86" else ""
        record = dict(version=f"ggml {version}, cc {' '.join(BUILDS[build_name][1:])}", machine=machine.describe())
        written = {"blocks": kg.Typed(ggml.encode(name, rows), "uint8", kv_format=name)}
        encode.observed(build_name, written, implementation=ggml.writer.format(name), profile=profile, **record)
        decoded = regimes.typed(ggml.decode(name, blocks), "f32")
        decode.observed(build_name, {"y": decoded}, implementation=f"dequantize_row_{name}", **record)


def between_halves(libraries, rng):
    """A row of blocks (1, 128) whose scales the two builds store as neighbours in f16."""
    x = rng.standard_normal((1 << 17, 32)).astype(np.float32)
    plain, fused = (Ggml(*item).encode("iq4_nl", x) for item in libraries.items())
    return x[np.flatnonzero((plain != fused).any(-1))[:4]].reshape(1, 128)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sdist")
    parser.add_argument("directory", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent / "data")
    parser.add_argument("--values", type=int)
    options = parser.parse_args()
    path = pathlib.Path(options.directory) / "ggml_blocks.h5"
    with tempfile.TemporaryDirectory() as folder:
        libraries, version = build(options.sdist, folder)
        of_table = {name: libraries[name] for name in ("ggml", "ggml_fma")}
        of_x86, plain = ({name: libraries[name]} for name in ("ggml_x86", "ggml"))
        with kg.Writer(str(path), source=f"ggml {version}", command="python golden/make/make_ggml.py SDIST") as writer:
            if options.values:
                for name in ggml_blocks.TYPES:
                    x = make_gguf.many(name, options.values)
                    add(writer, f"{name}.many", name, "f32", x, of_table if name == "iq4_nl" else plain, version)
                add(writer, "q8_0_x86.many", "q8_0", "f32", make_gguf.many("q8_0", options.values), of_x86, version)
            else:
                for name, built in (("iq4_nl", of_table), ("q8_0", of_x86)):
                    for kind in ("f32", "f16", "bf16"):
                        rng = regimes.generator(f"ggml.{name}.{kind}")
                        rows = regimes.codec_rows(kind, ggml_blocks.TYPES[name].bits, 128, rng, make_gguf.FAMILIES)
                        add(writer, f"{name}.{kind}", name, kind, rows, built, version)
                rows = between_halves(of_table, regimes.generator("ggml.iq4_nl.between"))
                add(writer, "iq4_nl.between", "iq4_nl", "f32", rows, of_table, version)
    print(path)


if __name__ == "__main__":
    main()
