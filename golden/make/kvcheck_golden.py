#!/usr/bin/env python3
"""Writes and reads kvcheck golden files (schema 1) from numpy arrays.

Needs numpy and h5py, nothing of kvcheck: copy this file beside your own script. The schema and the
definition of the content hash are in golden/README.md; the C++ reader (golden/reader.h) refuses a
file that departs from either.

    import numpy as np
    import kvcheck_golden as kg

    with kg.Writer("mine.h5", source="mylib 1.2", command="python make_mine.py") as w:
        case = w.case(
            "causal.f32",                      # [A-Za-z0-9_.-]+, unique in the file
            "attention ...",                   # the case, as `kvcheck run` takes it
            inputs={"q": q, "k": k, "v": v,    # plain arrays; axes follow from well-known names
                    "k_cache": kg.Typed(bits, "bfloat16", axes=("B", "Hkv", "T", "Dk"))},
            expected={"out": (hi, lo),         # optional: float64, or a pair (hi, lo) of float64
                      "lse": lse})
        case.observed(
            "mylib",                           # one record per implementation
            outputs={"out": out, "lse": kg.Typed(bits, "float16")},
            implementation="mylib.attention", version="1.2", machine="AVX2, 4 threads",
            plan="...", profile="...",
            expect="PASS")                     # "PASS", "MISTRUSTED" or "FAIL" with reason="..."

Writer(path, source, command)   the file appears under `path` only when the block ends without an
                                exception: it is written beside it, synced, and renamed.
Typed(array, dtype=None, axes=None, kv_format=None)
    dtype      a kvcheck type; needed when numpy has no such type: give bfloat16 as uint16 bits, and
               float8_* and float4_e2m1fn as uint8 bits (one per byte). Arrays of ml_dtypes are
               understood as they are.
    axes       one letter per dimension, of B Hq Hkv L T Dk Dv G W, or "" for an unnamed dimension.
               None: by the name and rank of the tensor (AXES below), otherwise unnamed.
    kv_format  the format that packed codes are in, e.g. "affine:4:g64:bf16"; only for codes.
read(path) -> File              checks the hash, and returns everything as numpy arrays.
verify(path)                    the same, returns nothing; raises GoldenError.

From a shell: kvcheck_golden.py verify FILE..., kvcheck_golden.py show FILE...
"""

import dataclasses
import hashlib
import os
import re
import struct
import sys
import tempfile

import h5py
import numpy as np

SCHEMA = 1
AXIS_LETTERS = ("B", "Hq", "Hkv", "L", "T", "Dk", "Dv", "G", "W")
EXPECTATIONS = ("PASS", "MISTRUSTED", "FAIL")
OBSERVED_TEXTS = ("implementation", "version", "machine", "plan", "profile", "expect", "reason")
MAX_TEXT_BYTES = 60000  # an HDF5 attribute ends at 64 KiB
MAX_NAME_BYTES = 200
MAX_RANK = 8
CHUNK_BYTES = 256 * 1024
CONTIGUOUS_UP_TO_BYTES = 64 * 1024

# kvcheck's types, and what each is stored as.
STORAGE = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2",
    "bfloat16": "<u2", "float8_e4m3fn": "|u1", "float8_e5m2": "|u1", "float8_e8m0fnu": "|u1",
    "float4_e2m1fn": "|u1",
    "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
    "uint8": "|u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "bool": "|u1",
}
# Types that numpy has no name for: given as bits, or as arrays of ml_dtypes.
AS_BITS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn")

# Axes of tensors whose name says them, by name and rank.
AXES = {
    ("q", 4): ("B", "Hq", "L", "Dk"),
    ("k", 4): ("B", "Hkv", "T", "Dk"),
    ("v", 4): ("B", "Hkv", "T", "Dv"),
    ("out", 4): ("B", "Hq", "L", "Dv"),
    ("lse", 3): ("B", "Hq", "L"),
    ("mask", 2): ("L", "T"),
    ("mask", 4): ("B", "Hq", "L", "T"),
    ("sinks", 1): ("Hq",),
    ("alibi_slopes", 1): ("Hq",),
    ("codes", 2): ("", "W"),
    ("scales", 2): ("", "G"),
    ("biases", 2): ("", "G"),
}
for _side in ("k", "v"):
    AXES[(_side + "_codes", 4)] = ("B", "Hkv", "T", "W")
    AXES[(_side + "_scales", 4)] = ("B", "Hkv", "T", "G")
    AXES[(_side + "_biases", 4)] = ("B", "Hkv", "T", "G")
    AXES[(_side + "_blocks", 4)] = ("B", "Hkv", "T", "")

_NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")


class GoldenError(ValueError):
    """The arrays do not fit the schema, or the file does not."""


@dataclasses.dataclass
class Typed:
    array: np.ndarray
    dtype: str | None = None
    axes: tuple | None = None
    kv_format: str | None = None


@dataclasses.dataclass
class Observed:
    outputs: dict
    implementation: str
    version: str
    machine: str
    plan: str
    profile: str
    expect: str
    reason: str


@dataclasses.dataclass
class Case:
    case_text: str
    inputs: dict
    expected: dict  # output name -> (hi, lo or None)
    observed: dict  # implementation name -> Observed


@dataclasses.dataclass
class File:
    source: str
    command: str
    content_hash: str
    cases: dict


# ---------------------------------------------------------------------------------- vocabulary

def _check_name(name, what):
    if (not isinstance(name, str) or not _NAME.match(name) or set(name) == {"."} or
            len(name) > MAX_NAME_BYTES):
        raise GoldenError(f"{what} name {name!r}: use up to {MAX_NAME_BYTES} of [A-Za-z0-9_.-]")
    return name


def _check_input_name(name):
    _check_name(name, "tensor")
    if name == "observed" or name == "expected" or name.startswith("expected_"):
        raise GoldenError(f"an input cannot be called {name!r}: the schema uses that name")
    return name


def _check_text(text, what):
    if not isinstance(text, str):
        raise GoldenError(f"{what} must be a str, not {type(text).__name__}")
    if "\0" in text or len(text.encode("utf-8")) > MAX_TEXT_BYTES:
        raise GoldenError(f"{what} must have no NUL and at most {MAX_TEXT_BYTES} bytes")
    return text


def _check_axes(axes, rank, what):
    axes = tuple(axes)
    if len(axes) != rank:
        raise GoldenError(f"{what}: {len(axes)} axes for {rank} dimensions")
    named = [a for a in axes if a != ""]
    if any(a not in AXIS_LETTERS for a in named) or len(set(named)) != len(named):
        raise GoldenError(f"{what}: axes {axes} are not distinct letters of {AXIS_LETTERS}")
    return axes


def as_typed(name, value):
    """A Typed whose array is little endian, C-contiguous, in storage type, with axes filled in."""
    value = value if isinstance(value, Typed) else Typed(value)
    array = np.asarray(value.array)
    dtype = value.dtype
    if dtype is None:
        dtype = array.dtype.name
    if dtype not in STORAGE:
        raise GoldenError(f"{name}: {dtype} is not one of {', '.join(STORAGE)}")
    storage = np.dtype(STORAGE[dtype])
    if dtype in AS_BITS and array.dtype.name == dtype:
        array = np.ascontiguousarray(array).view(storage).reshape(array.shape)
    elif dtype == "bool":
        if array.dtype != np.bool_ and not (array.dtype == np.uint8 and np.all(array <= 1)):
            raise GoldenError(f"{name}: bool takes np.bool_, or uint8 with 0 and 1")
    elif array.dtype.newbyteorder("<") != storage.newbyteorder("<"):
        raise GoldenError(f"{name}: {dtype} is stored as {storage}, the array is {array.dtype}; "
                          "nothing is converted here, round it yourself")
    if array.ndim > MAX_RANK:
        raise GoldenError(f"{name}: {array.ndim} dimensions, at most {MAX_RANK} are allowed")
    shape = array.shape
    array = np.ascontiguousarray(array.astype(storage, copy=False)).reshape(shape)
    axes = value.axes
    if axes is None:
        axes = AXES.get((name, array.ndim), ("",) * array.ndim)
    axes = _check_axes(axes, array.ndim, name)
    if value.kv_format is not None:
        _check_text(value.kv_format, f"kv_format of {name}")
    return Typed(array, dtype, axes, value.kv_format)


def expected_dataset(output, low=False):
    """The dataset that holds an expected output: `expected` for out, `expected_NAME` for others."""
    base = "expected" if output == "out" else "expected_" + output
    return base + "_lo" if low else base


def _output_of(dataset):
    low = dataset.endswith("_lo")
    base = dataset[:-3] if low else dataset
    return ("out" if base == "expected" else base[len("expected_"):]), low


def _check_output_name(name):
    _check_name(name, "output")
    if name == "lo" or name.endswith("_lo"):
        raise GoldenError(f"an output cannot be called {name!r}: _lo marks low parts")
    return name


# ---------------------------------------------------------------------------------------- hash

def _counted(data):
    return struct.pack("<Q", len(data)) + data


def record(kind, path, attributes, extents=None, data_digest=None):
    """The bytes by which one object enters the content hash (golden/README.md)."""
    out = [kind, _counted(path.encode("utf-8")), struct.pack("<Q", len(attributes))]
    for name in sorted(attributes, key=lambda n: n.encode("utf-8")):
        value = attributes[name]
        out.append(_counted(name.encode("utf-8")))
        if isinstance(value, str):
            out.append(b"S" + _counted(value.encode("utf-8")))
        else:
            out.append(b"I" + struct.pack("<q", value))
    if kind == b"D":
        out.append(struct.pack("<Q", len(extents)))
        out.extend(struct.pack("<Q", extent) for extent in extents)
        out.append(data_digest)
    return b"".join(out)


def content_hash(records):
    """records: object path -> bytes of record()."""
    total = hashlib.sha256(b"kvcheck golden 1\n")
    for path in sorted(records, key=lambda p: p.encode("utf-8")):
        total.update(records[path])
    return "sha256:" + total.hexdigest()


def _digest(array):
    return hashlib.sha256(array.tobytes()).digest()


# -------------------------------------------------------------------------------------- writing

def _put_text(target, name, text):
    data = text.encode("utf-8")
    # HDF5 has no string of length 0: the empty text is one NUL of padding.
    target.attrs.create(name, np.array(data, dtype=h5py.string_dtype("utf-8", max(1, len(data)))))


def _chunks(shape, itemsize):
    """Whole trailing dimensions up to CHUNK_BYTES, then a part of the next one."""
    chunk, size = [1] * len(shape), itemsize
    for i in reversed(range(len(shape))):
        chunk[i] = max(1, min(shape[i], CHUNK_BYTES // size))
        size *= chunk[i]
        if chunk[i] < shape[i]:
            break
    return tuple(chunk)


class CaseWriter:
    def __init__(self, writer, group):
        self._writer, self._group = writer, group

    def observed(self, impl, outputs, implementation="", version="", machine="", plan="",
                 profile="", expect="PASS", reason=""):
        _check_name(impl, "implementation")
        if expect not in EXPECTATIONS:
            raise GoldenError(f"expect={expect!r} is not one of {', '.join(EXPECTATIONS)}")
        if expect == "FAIL" and not reason:
            raise GoldenError("an expected FAIL is a finding: say its reason")
        if not outputs:
            raise GoldenError(f"observed {impl!r} has no outputs")
        texts = dict(implementation=implementation, version=version, machine=machine, plan=plan,
                     profile=profile, expect=expect, reason=reason)
        parent = self._group.name + "/observed"
        if parent not in self._writer._records:
            self._writer._group(parent, {})
        group = self._writer._group(f"{parent}/{impl}", texts)
        for name, value in outputs.items():
            self._writer._dataset(group, _check_output_name(name), as_typed(name, value))


class Writer:
    def __init__(self, path, source, command):
        self._path = os.path.abspath(path)
        texts = dict(source=_check_text(source, "source"), command=_check_text(command, "command"))
        handle, self._temporary = tempfile.mkstemp(
            prefix=os.path.basename(self._path) + ".", suffix=".tmp",
            dir=os.path.dirname(self._path))
        os.close(handle)
        self._records = {}
        # The oldest encodings that hold the schema: every HDF5 since 1.10 reads them.
        self._file = h5py.File(self._temporary, "w", libver=("earliest", "v110"))
        self._file.attrs.create("kvcheck_schema", np.array(SCHEMA, dtype="<i8"))
        for name, text in texts.items():
            _put_text(self._file, name, text)
        self._records["/"] = record(b"G", "/", dict(texts, kvcheck_schema=SCHEMA))
        self._group("/cases", {})

    def case(self, name, case_text, inputs, expected=None):
        _check_name(name, "case")
        group = self._group("/cases/" + name, {"case": case_text})
        for key, value in inputs.items():
            self._dataset(group, _check_input_name(key), as_typed(key, value))
        for key, value in (expected or {}).items():
            _check_output_name(key)
            parts = value if isinstance(value, tuple) else (value,)
            if len(parts) not in (1, 2):
                raise GoldenError(f"expected {key!r} is (hi,) or (hi, lo)")
            parts = [as_typed(key, part) for part in parts if part is not None]
            if any(p.dtype != "float64" or p.kv_format is not None for p in parts):
                raise GoldenError(f"expected {key!r} must be float64, without a kv_format")
            if len(parts) == 2 and parts[0].array.shape != parts[1].array.shape:
                raise GoldenError(f"expected {key!r}: hi and lo have different shapes")
            for part, low in zip(parts, (False, True)):
                self._dataset(group, expected_dataset(key, low), part)
        return CaseWriter(self, group)

    def close(self):
        """Writes the hash, syncs, and puts the file in place."""
        _put_text(self._file, "content_hash", content_hash(self._records))
        self._file.close()
        handle = os.open(self._temporary, os.O_RDWR)
        os.fsync(handle)
        os.close(handle)
        os.chmod(self._temporary, 0o644)
        os.replace(self._temporary, self._path)
        handle = os.open(os.path.dirname(self._path), os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)

    def discard(self):
        """Forgets what was written; nothing appears under the path."""
        self._file.close()
        os.unlink(self._temporary)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close() if kind is None else self.discard()
        return False

    def _group(self, path, texts):
        if path in self._records:
            raise GoldenError(f"{path} is there already")
        for name, text in texts.items():
            _check_text(text, f"{name} of {path}")
        group = self._file.create_group(path)
        for name, text in texts.items():
            _put_text(group, name, text)
        self._records[path] = record(b"G", path, texts)
        return group

    def _dataset(self, group, name, typed):
        array = typed.array
        options = {}
        if name == "mask" and array.size:
            options = dict(chunks=_chunks(array.shape, array.itemsize), compression="gzip",
                           compression_opts=1, fletcher32=True) if array.ndim else {}
        elif array.ndim and array.nbytes > CONTIGUOUS_UP_TO_BYTES:
            options = dict(chunks=_chunks(array.shape, array.itemsize), fletcher32=True)
        dataset = group.create_dataset(name, data=array, track_times=False, **options)
        texts = {"kv_dtype": typed.dtype, "axes": ",".join(typed.axes)}
        if typed.kv_format is not None:
            texts["kv_format"] = typed.kv_format
        for key, text in texts.items():
            _put_text(dataset, key, text)
        path = f"{group.name}/{name}"
        self._records[path] = record(b"D", path, texts, array.shape, _digest(array))


# -------------------------------------------------------------------------------------- reading

def _texts(target, path):
    values = {}
    for name, value in target.attrs.items():
        if isinstance(value, bytes):
            value = value.decode("utf-8")
        if isinstance(value, (np.integer, int)):
            value = int(value)
        elif not isinstance(value, str):
            raise GoldenError(f"{path}: attribute {name} is neither a text nor an integer")
        values[name] = value
    return values


def _load(dataset, path):
    texts = _texts(dataset, path)
    dtype = texts.get("kv_dtype")
    if dtype not in STORAGE or dataset.dtype != np.dtype(STORAGE[dtype]):
        raise GoldenError(f"{path}: kv_dtype {dtype!r} does not fit the stored {dataset.dtype}")
    array = np.asarray(dataset[()])
    axes = texts.get("axes", "").split(",") if array.ndim else ()
    _check_axes(axes, array.ndim, path)
    return Typed(array, dtype, tuple(axes), texts.get("kv_format")), texts


def read(path):
    """Everything in the file; arrays of AS_BITS types stay bits.

    Errors: GoldenError when the file is not schema 1 or its content is not what its hash says."""
    records = {}
    with h5py.File(path, "r") as file:
        root = _texts(file, "/")
        if root.get("kvcheck_schema") != SCHEMA:
            raise GoldenError(f"{path} is not a golden file of schema {SCHEMA}")
        stored = root.pop("content_hash", "")
        records["/"] = record(b"G", "/", root)
        loaded = {}

        def visit(name, item):
            where = "/" + name
            if isinstance(item, h5py.Dataset):
                typed, texts = _load(item, where)
                loaded[where] = typed
                records[where] = record(b"D", where, texts, typed.array.shape,
                                        _digest(typed.array))
            else:
                loaded[where] = _texts(item, where)
                records[where] = record(b"G", where, loaded[where])

        file.visititems(visit)
    if content_hash(records) != stored:
        raise GoldenError(f"{path}: the content is not what content_hash says; it was changed or "
                          "damaged after it was written")
    result = File(root["source"], root["command"], stored, {})
    for where in sorted(loaded):
        parts, value = where.split("/")[2:], loaded[where]
        if len(parts) == 1:
            result.cases[parts[0]] = Case(value["case"], {}, {}, {})
        elif len(parts) == 2 and isinstance(value, Typed):
            case = result.cases[parts[0]]
            if parts[1] == "expected" or parts[1].startswith("expected_"):
                output, low = _output_of(parts[1])
                pair = list(case.expected.get(output, (None, None)))
                pair[int(low)] = value.array
                case.expected[output] = tuple(pair)
            else:
                case.inputs[parts[1]] = value
        elif len(parts) == 3:
            result.cases[parts[0]].observed[parts[2]] = Observed({}, **value)
        elif len(parts) == 4:
            result.cases[parts[0]].observed[parts[2]].outputs[parts[3]] = value
    return result


def verify(path):
    """Errors: GoldenError, as read()."""
    read(path)


def _show(path):
    file = read(path)
    print(f"{path}: {len(file.cases)} cases, {file.content_hash}")
    print(f"  source   {file.source}\n  command  {file.command}")

    def line(name, typed):
        axes = " ".join(f"{a}={n}" if a else str(n) for a, n in zip(typed.axes, typed.array.shape))
        print(f"    {name:<24} {typed.dtype:<14} {axes} {typed.kv_format or ''}".rstrip())

    for name, case in file.cases.items():
        print(f"  {name}: {case.case_text}")
        for key, typed in case.inputs.items():
            line(key, typed)
        for key, (hi, lo) in case.expected.items():
            print(f"    expected {key}: {'x'.join(map(str, hi.shape))}, "
                  f"{'hi and lo' if lo is not None else 'hi'}")
        for impl, record_ in case.observed.items():
            print(f"   observed {impl}: {record_.implementation} {record_.version}, expect "
                  f"{record_.expect} {record_.reason}".rstrip())
            for key, typed in record_.outputs.items():
                line(key, typed)


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("verify", "show"):
        print("usage: kvcheck_golden.py verify|show FILE...", file=sys.stderr)
        return 2
    for path in arguments[1:]:
        try:
            _show(path) if arguments[0] == "show" else verify(path)
        except (GoldenError, OSError, KeyError) as error:
            print(f"kvcheck_golden.py: {path}: {error}", file=sys.stderr)
            return 2
        if arguments[0] == "verify":
            print(f"{path}: content as its hash says")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
