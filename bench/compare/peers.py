#!/usr/bin/env python3
"""kvcheck compare beside h5diff, cmp and numpy.allclose, and beside the best read of the same files.

usage: peers.py KVCHECK COMPARE_FILES [--mib 2048] [--rounds 5] [--threads 2] [--folder DIR] [--small 10000]
                [--types f32,f16,bf16] [--no-full]

Needs numpy and h5py, h5diff (hdf5-tools) and cmp. Makes HDF5 files of one contiguous dataset in DIR (a new folder of
the system's temporary ones; it should not be a RAM disk), per type: normal deviates, the same again, and every value
moved by 2^-S of itself, S = 12, 8, 6 for f32, f16, bf16, within the tolerance of 2^-(S-1) that is asked for. They are read
once before they are measured, so that they are in the page cache, and removed afterwards: three of them at a time.

The rounds take turns over all programs, so that a slow moment of the machine meets all. Printed are median and
quartiles of the wall-clock seconds of whole processes, and the peak of resident memory of the process and its children
together, from a run of its own. Rates count the bytes of both files. cmp knows equal bytes alone and stops at the first
other one, so that only equal files say how fast it is. h5diff and numpy are measured on f32 alone: they do not know
bfloat16, and h5diff converts f16 at some 10 MB a second.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

CHUNK = 1 << 22  # elements
SHIFT = {"f32": 12, "f16": 8, "bf16": 6}
SIZE = {"f32": 4, "f16": 2, "bf16": 2}


# --------------------------------------------------------------------------------- files


def to_stored(values, kind):
    """float32 values as they are stored; bfloat16 rounded to nearest even, in uint16."""
    if kind != "bf16":
        return values.astype({"f32": np.float32, "f16": np.float16}[kind])
    words = values.view(np.uint32)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def to_float32(stored, kind):
    if kind != "bf16":
        return stored.astype(np.float32)
    return (stored.astype(np.uint32) << 16).view(np.float32)


def make_files(folder, kind, count):
    """gold.h5, same.h5 and moved.h5 of `count` elements."""
    random = np.random.default_rng(1)
    files = {name: h5py.File(folder / f"{name}.h5", "w") for name in ("gold", "same", "moved")}
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[kind]
    for file in files.values():
        dataset = file.create_dataset("x", shape=(count,), dtype=dtype)
        if kind == "bf16":
            dataset.attrs["kv_dtype"] = np.bytes_("bfloat16")
    for first in range(0, count, CHUNK):
        n = min(CHUNK, count - first)
        # No subnormal numbers, whose neighbours are further away than 2^-S.
        values = random.standard_normal(n, dtype=np.float32)
        values[np.abs(values) < 2.0 ** -10] = 1
        gold = to_stored(values, kind)
        sign = np.where(random.integers(0, 2, n, dtype=np.int8) == 0, np.float32(-1), np.float32(1))
        moved = to_stored(to_float32(gold, kind) * (1 + sign * np.float32(2.0 ** -SHIFT[kind])), kind)
        for name, block in (("gold", gold), ("same", gold), ("moved", moved)):
            files[name]["x"][first:first + n] = block
    for file in files.values():
        file.close()
    return {name: folder / f"{name}.h5" for name in files}


def make_small(folder, count):
    """`count` tensors of 8 x 8, twice, as HDF5 and as safetensors."""
    random = np.random.default_rng(1)
    data = random.standard_normal((count, 8, 8), dtype=np.float32)
    header = {f"layers.{i}.weight": {"dtype": "F32", "shape": [8, 8], "data_offsets": [256 * i, 256 * (i + 1)]}
              for i in range(count)}
    text = json.dumps(header).encode()
    paths = []
    for name in ("small_gold", "small_same"):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            for i in range(count):
                file.create_dataset(f"layers/{i}/weight", data=data[i])
        (folder / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())
        paths += [folder / f"{name}.h5", folder / f"{name}.safetensors"]
    return paths[0::2], paths[1::2]


def warm(paths):
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


# --------------------------------------------------------------------------- measurements


def run(command, accepted, prints=False):
    """(seconds, standard output). An exit status that was not expected ends the script: a program that does not do
    what is measured has no speed."""
    start = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    seconds = time.perf_counter() - start
    output = done.stdout.decode(errors="replace")
    if done.returncode not in accepted:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {done.returncode}, expected {accepted}\n"
                 f"{output[-2000:]}{done.stderr.decode(errors='replace')[-2000:]}")
    if prints:
        print(output, end="")
    return seconds, output


def children_of(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                found += children_of(int(child))
        except OSError:
            pass
    return found


def high_water(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0


def watch(command):
    """(MiB, seconds): resident memory and time of one run. Memory is the peak of the process and its children, each at
    its own peak, summed; of their programs alone, where ru_maxrss also has what this script held before exec."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks = {}
    own = os.stat(f"/proc/{os.getpid()}/exe").st_ino
    time.sleep(0.002)
    while process.poll() is None:
        for pid in children_of(process.pid):
            try:
                is_exec = os.stat(f"/proc/{pid}/exe").st_ino != own or str(command[0]) == sys.executable
            except OSError:
                continue
            if is_exec:
                peaks[pid] = max(peaks.get(pid, 0), high_water(pid))
        time.sleep(0.005)
    return sum(peaks.values()), time.perf_counter() - start


def best_read(compare_files, gold, got, kind, rule):
    """GB/s of the best read of both files, and of the first pass, in one round of all ways to read."""
    _, output = run([compare_files, gold, got, kind, rule, "1"], (0,))
    rates = {name.strip(): float(rate) for name, rate in re.findall(r"^(.{34}) +([\d.]+) GB/s", output, re.M)}
    reads = [rate for name, rate in rates.items() if name.startswith("read")]
    passes = [rate for name, rate in rates.items() if name.startswith("first pass")]
    return max(reads), max(passes)


def quartiles(values):
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def allclose(gold, got, tolerance):
    """numpy.allclose by blocks, as who has little memory writes it. Run by this script as a process of its own."""
    with h5py.File(gold) as a, h5py.File(got) as b:
        x, y = a["x"], b["x"]
        for first in range(0, x.shape[0], CHUNK):
            if not np.allclose(y[first:first + CHUNK], x[first:first + CHUNK], rtol=tolerance, atol=0):
                sys.exit(1)


# --------------------------------------------------------------------------------- tables


def programs_of(options, kind, files):
    """(name, files, command, exit statuses), of every program that can compare the files at all."""
    tolerance = 2.0 ** -(SHIFT[kind] - 1)
    kvcheck = [options.kvcheck, "compare", "--threads", str(options.threads)]
    rule = ["--tol", f"rel:2^-{SHIFT[kind] - 1}"]
    gold, same, moved = files["gold"], files["same"], files["moved"]
    own = [sys.executable, os.path.abspath(__file__), "--allclose", repr(tolerance)]
    programs = [("kvcheck compare", "equal", [*kvcheck, gold, same], (0,)),
                ("kvcheck compare --tol", "equal", [*kvcheck, *rule, gold, same], (0,)),
                ("kvcheck compare --tol", "moved", [*kvcheck, *rule, gold, moved], (0,))]
    if kind == "f32":
        programs += [("h5diff", "equal", ["h5diff", gold, same], (0,)),
                     ("h5diff -p", "moved", ["h5diff", "-p", repr(tolerance), gold, moved], (0,)),
                     ("numpy.allclose by blocks", "equal", [*own, gold, same], (0,)),
                     ("numpy.allclose by blocks", "moved", [*own, gold, moved], (0,))]
    return programs + [("cmp", "equal", ["cmp", gold, same], (0,))]


def print_table(seconds, memory, gigabytes, base):
    print("| program | files | seconds | quartiles | GB/s | resident MiB | times as long as kvcheck on these files |")
    print("|---|---|---|---|---|---|---|")
    for key, values in seconds.items():
        low, middle, high = quartiles(values)
        ratios = quartiles([a / b for a, b in zip(values, seconds[base[key[1]]])])
        print(f"| {key[0]} | {key[1]} | {middle:.3f} | {low:.3f} - {high:.3f} | {gigabytes / middle:.2f} | "
              f"{memory[key]:.0f} | {ratios[1]:.2f} ({ratios[0]:.2f} - {ratios[2]:.2f}) |")


def measure_type(options, folder, kind):
    count = (options.mib << 20) // SIZE[kind]
    files = make_files(folder, kind, count)
    warm(files.values())
    gigabytes = 2e-9 * count * SIZE[kind]
    rule = f"rel:2^-{SHIFT[kind] - 1}"
    programs = programs_of(options, kind, files)
    seconds = {(name, on): [] for name, on, _, _ in programs}
    memory = {(name, on): watch(command)[0] for name, on, command, _ in programs}
    reads, shares = [], []
    for _ in range(options.rounds):
        for name, on, command, accepted in programs:
            seconds[name, on].append(run(command, accepted)[0])
        reads.append(best_read(options.compare_files, files["gold"], files["moved"], kind, rule))
        shares.append([gigabytes / seconds[key][-1] / reads[-1][0] for key in
                       (("kvcheck compare", "equal"), ("kvcheck compare --tol", "moved"))])
    print(f"\n### {kind}: 2 x {options.mib} MiB, {options.rounds} rounds, {options.threads} threads\n")
    print_table(seconds, memory, gigabytes, {"equal": ("kvcheck compare", "equal"),
                                             "moved": ("kvcheck compare --tol", "moved")})
    for at, name in ((0, "best read of both files"), (1, "first pass alone (tools/compare/first_pass_run.h)")):
        low, middle, high = quartiles([read[at] for read in reads])
        print(f"\n{name}: {middle:.2f} GB/s ({low:.2f} - {high:.2f})", end="")
    for at, name in ((0, "equal"), (1, "moved")):
        low, middle, high = quartiles([100 * share[at] for share in shares])
        print(f"\nkvcheck compare, {name}: {middle:.0f} % of the best read of its round ({low:.0f} - {high:.0f})", end="")
    print()
    if options.full:
        command = [options.kvcheck, "compare", "--threads", str(options.threads), "--tol", rule, "--stats", "full",
                   files["gold"], files["moved"]]
        mib, full = watch(command)
        print(f"--stats full, moved: {full:.1f} s, {gigabytes / full:.2f} GB/s, {1e9 * full / count:.1f} ns per element, "
              f"{mib:.0f} MiB (one run)")
    for path in files.values():
        path.unlink()


def measure_small(options, folder):
    hdf5, safetensors = make_small(folder, options.small)
    print(f"\n### {options.small} tensors of 8 x 8\n")
    programs = [("kvcheck compare", "safetensors", [options.kvcheck, "compare", *safetensors], (0,)),
                ("kvcheck compare", "HDF5", [options.kvcheck, "compare", *hdf5], (0,)),
                ("h5diff", "HDF5", ["h5diff", *hdf5], (0,))]
    seconds = {(name, on): [] for name, on, _, _ in programs}
    memory = {(name, on): watch(command)[0] for name, on, command, _ in programs}
    for _ in range(options.rounds):
        for name, on, command, accepted in programs:
            seconds[name, on].append(run(command, accepted)[0])
    print_table(seconds, memory, 2e-9 * 256 * options.small, {on: ("kvcheck compare", on) for on in ("safetensors", "HDF5")})
    for path in (*hdf5, *safetensors):
        path.unlink()


def main():
    if sys.argv[1:2] == ["--allclose"]:
        allclose(sys.argv[3], sys.argv[4], float(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcheck", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("compare_files", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--mib", type=int, default=2048, help="of each file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--small", type=int, default=10000)
    parser.add_argument("--types", default="f32,f16,bf16")
    parser.add_argument("--no-full", dest="full", action="store_false")
    options = parser.parse_args()
    for tool in ("h5diff", "cmp"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: tools/install_packages.sh --all")
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="kvcheck_peers_") as folder:
        for kind in options.types.split(","):
            measure_type(options, pathlib.Path(folder), kind)
        if options.small:
            measure_small(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
