"""Makes mlx_lm_traces.h5: traces through the caches of mlx-lm, with all that they showed after every operation.

Usage: python make_mlx_lm_traces.py [DIRECTORY [TRACES.txt]]     (default: ../data beside this file)
With TRACES.txt: the cases in it, one a line, as t1, t2, ... in DIRECTORY/traces.h5, all expected to pass.
Needs the packages of requirements-mlx.txt. The traces are in mlx_lm_traces.py, the library behind mlx_lm_caches.py.
What is appended follows from the trace (token_rows.py), so the files hold answers alone.
"""
import pathlib
import sys
import tempfile

import mlx.core as mx

import kvcheck_golden as kg
import machine
import make_mlx
import mlx_lm_caches
import trace_recording
import trace_text
from mlx_lm_traces import TRACES


def record_trace(text):
    """The outputs of one trace, and the names of the classes that it met."""
    setup, operations = trace_text.parse(text)
    answers, shown, classes = [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        driven = mlx_lm_caches.Library(setup, operations, pathlib.Path(folder))
        for index in range(len(operations)):
            answers.append(driven.carry_out(index))
            shown.append({name: driven.show(name) for name in driven.slots})
            classes |= {type(slot.cache).__name__ for slot in driven.slots.values()}
    return trace_recording.outputs(answers, shown), sorted(classes)


def profile_of(classes, setup):
    """What mlx-lm does on purpose otherwise than the contract's defaults.

    size: the base class says 0, batches count columns with their padding, a sliding window counts all that is held.
    bytes: nbytes is what is allocated. empty: nothing was ever allocated. is_trimmable: of a class or of a full ring,
    not of the shortest row. trim of a full ring gives nothing back.
    """
    fields = ["bytes=capacity", "empty=any", "trimmable=any", "trim=shorter"]
    if {"QuantizedKVCache", "ChunkedKVCache"} & set(classes):
        fields.insert(0, "size=any")
    elif any(name.startswith("Batch") for name in classes) or setup.layout.startswith("linear:w"):
        fields.insert(0, "size=columns")
    return " ".join(fields)


def plan_of(classes, setup):
    return f"base={'mlx_lm_quantized' if 'QuantizedKVCache' in classes else 'mlx_cpu_sdpa'}_{setup.x}"


def add(writer, name, text, expect="PASS", reason=""):
    setup, operations = trace_text.parse(text)
    outputs, classes = record_trace(text)
    attends = any(op.kind == "attend" for op in operations)
    case = writer.case(name, text, {})
    case.observed("mlx_lm", outputs, implementation="mlx_lm.models.cache: " + ", ".join(classes),
                  version=f"mlx-lm {make_mlx.MLX_LM}, mlx {make_mlx.MLX}", machine=machine.describe(),
                  plan=plan_of(classes, setup) if attends else "",
                  profile="decode=two_roundings " + profile_of(classes, setup), expect=expect, reason=reason)


def main(arguments):
    directory = pathlib.Path(arguments[1] if len(arguments) > 1 else pathlib.Path(__file__).parent.parent / "data")
    mx.set_default_device(mx.cpu)
    name, traces = "mlx_lm_traces.h5", TRACES
    if len(arguments) > 2:
        lines = pathlib.Path(arguments[2]).read_text().splitlines()
        name, traces = "traces.h5", [(f"t{i + 1}", line) for i, line in enumerate(lines) if line]
    with kg.Writer(directory / name, source=f"mlx-lm {make_mlx.MLX_LM}, mlx {make_mlx.MLX}",
                   command="python golden/make/make_mlx_lm_traces.py") as writer:
        for trace in traces:
            add(writer, *trace)


if __name__ == "__main__":
    main(sys.argv)
