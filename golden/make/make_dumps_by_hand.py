"""Makes golden/dumps/by_hand*: an attention problem as people dump it with torch, safetensors, numpy and h5py before they
have read anything about kvcheck.

Usage: python make_dumps_by_hand.py [DIRECTORY]     (default: ../dumps beside this file)
Needs the packages of requirements-torch.txt. The numbers are random, from a seed; the kernel is PyTorch's flash on the CPU.

  by_hand.safetensors   query, key, value in bfloat16 and attn_output (B, T, H, D), all upcast with .float()
  by_hand_inputs.h5     query_states, key_states, value_states of the first batch row alone, (T, H, D), float32 of h5py
  by_hand_output.h5     attn_output of that row, (T, H * D), float64 of h5py
"""
import pathlib
import sys

import h5py
import torch
from safetensors.torch import save_file
from torch.nn.attention import SDPBackend, sdpa_kernel

SEED = 19
HEADS = {"query": 4, "key": 2, "value": 2}


def main(arguments):
    default = pathlib.Path(__file__).parent.parent / "dumps"
    directory = pathlib.Path(arguments[1] if len(arguments) > 1 else default)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    inputs = {name: torch.randn(2, count, 9, 32).to(torch.bfloat16) for name, count in HEADS.items()}
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(**inputs, is_causal=True, enable_gqa=True)
    out = out.transpose(1, 2).contiguous()  # as attention functions of transformers return it
    save_file({**{name: tensor.float() for name, tensor in inputs.items()}, "attn_output": out.float()},
              directory / "by_hand.safetensors")
    with h5py.File(directory / "by_hand_inputs.h5", "w") as file:
        for name, tensor in inputs.items():
            file[f"{name}_states"] = tensor[0].transpose(0, 1).float().numpy()
    with h5py.File(directory / "by_hand_output.h5", "w") as file:
        file["attn_output"] = out[0].flatten(1).double().numpy()


if __name__ == "__main__":
    main(sys.argv)
