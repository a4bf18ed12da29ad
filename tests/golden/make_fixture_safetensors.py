#!/usr/bin/env python3
"""Writes fixture_torch.safetensors and fixture_numpy.safetensors beside this script.

    python3 tests/golden/make_fixture_safetensors.py      (torch 2.15.0, numpy 2.4.6, safetensors 0.8.0)

Files as the safetensors package writes them: every type that PyTorch has, with values that are exact
in each; a scalar, tensors without elements, nine axes, names that are no plain words, metadata; and
a state dict of numpy arrays without metadata.
"""

import os

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

HERE = os.path.dirname(os.path.abspath(__file__))

TORCH_TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e8m0fnu, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64,
    torch.float8_e4m3fnuz]


def main():
    tensors = {}
    for dtype in TORCH_TYPES:
        name = "types." + str(dtype).split(".")[1]
        tensors[name] = torch.tensor([[1, 2, 4], [8, 16, 32]], dtype=torch.float64).to(dtype)
    tensors["types.float4_e2m1fn_x2"] = torch.tensor([0x21, 0x43], dtype=torch.uint8).view(
        torch.float4_e2m1fn_x2)
    tensors["scalar"] = torch.tensor(1.5)
    tensors["empty"] = torch.zeros((2, 0, 3), dtype=torch.bfloat16)
    tensors["rank9"] = torch.zeros((1,) * 9)
    tensors["a/b c\n\u2208"] = torch.tensor([1.0, -0.0, float("inf"), float("nan")])
    safetensors.torch.save_file(tensors, os.path.join(HERE, "fixture_torch.safetensors"),
                                metadata={"format": "pt", "0.1": "offset \u2208 17", "empty": ""})
    arrays = {f"layers.{i}.{part}": np.arange(6, dtype=np.float16).reshape(1, 2, 3) + i
              for i in range(3) for part in ("keys", "values")}
    safetensors.numpy.save_file(arrays, os.path.join(HERE, "fixture_numpy.safetensors"))


if __name__ == "__main__":
    main()
