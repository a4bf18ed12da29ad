"""Says on what a golden was made: the instruction set that decides which kernels run, and the threads. No names."""
import os
import pathlib
import platform


def describe(threads=None):
    threads = threads or len(os.sched_getaffinity(0))
    isa = platform.machine().replace("_", "-")
    cpu = pathlib.Path("/proc/cpuinfo")
    flags = set()
    if cpu.exists():
        for line in cpu.read_text().splitlines():
            if line.startswith(("flags", "Features")):
                flags = set(line.split(":", 1)[1].split())
                break
    found = [label for flag, label in (("avx2", "AVX2"), ("avx512f", "AVX-512"), ("avx512_bf16", "AVX512-BF16"),
                                       ("avx512_fp16", "AVX512-FP16"), ("amx_bf16", "AMX-BF16"), ("asimd", "NEON"),
                                       ("sve", "SVE")) if flag in flags]
    return f"{isa} {' '.join(found)}".strip() + f", {threads} threads"
