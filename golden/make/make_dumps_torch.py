"""Makes the dumps of PyTorch in golden/dumps, saved by safetensors.torch: state dicts of a small transformer, and one
attention problem with the outputs of two kernels.

Usage: python make_dumps_torch.py [DIRECTORY]     (default: ../dumps beside this file)
Needs the packages of requirements-torch.txt. The weights are random, from a seed.

  state.safetensors        float32
  state_bf16.safetensors   the same in bfloat16
  state_fp8.safetensors    the same in float8_e4m3fn
  state_tuned.safetensors  float32 after one step of training in which only layer 1 was free
  attention.safetensors    q, k, v in bfloat16 and out of the flash kernel, causal
  attention_math.safetensors  out of the math path
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch.nn.attention import SDPBackend, sdpa_kernel

SEED = 7
WIDTH = 16


def attention(directory):
    heads = {"q": 4, "k": 2, "v": 2}
    inputs = {name: torch.randn(2, count, 17, 32).to(torch.bfloat16) for name, count in heads.items()}
    for backend, name, kept in ((SDPBackend.FLASH_ATTENTION, "attention", inputs),
                                (SDPBackend.MATH, "attention_math", {})):
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(**dict(zip(("query", "key", "value"),
                                                                              inputs.values())),
                                                                   is_causal=True, enable_gqa=True)
        save_file({**kept, "out": out.contiguous()}, str(directory / f"{name}.safetensors"))


def main(arguments):
    default = pathlib.Path(__file__).parent.parent / "dumps"
    directory = pathlib.Path(arguments[1] if len(arguments) > 1 else default)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, nhead=2, dim_feedforward=2 * WIDTH, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    for parameter in model.parameters():  # the layers of a TransformerEncoder start as copies of each other
        if parameter.dim() > 1:
            torch.nn.init.xavier_uniform_(parameter)

    def save(name, dtype=torch.float32):
        save_file({key: value.to(dtype).contiguous() for key, value in model.state_dict().items()},
                  str(directory / f"{name}.safetensors"), metadata={"format": "pt"})

    save("state")
    save("state_bf16", torch.bfloat16)
    save("state_fp8", torch.float8_e4m3fn)
    for key, parameter in model.named_parameters():
        parameter.requires_grad_(key.startswith("layers.1."))
    model(torch.randn(2, 5, WIDTH)).square().mean().backward()
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1).step()
    save("state_tuned")
    attention(directory)


if __name__ == "__main__":
    main(sys.argv)
