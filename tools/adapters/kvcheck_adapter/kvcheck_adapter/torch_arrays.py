"""For libraries whose arrays are PyTorch's: numpy's arrays of this package as tensors, and back. Imports torch, so it is
imported by adapters alone."""
import torch

from .storage import STORED

TYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def to_torch(array, kind):
    """The tensor over the same memory; bf16 comes as uint16. Errors: KeyError for other types than TYPES and b8."""
    tensor = torch.from_numpy(array)
    if kind == "b8":
        return tensor
    if STORED[kind] != array.dtype:
        raise TypeError(f"an array of {array.dtype.name} holds no {kind}")
    return tensor.view(TYPES[kind]) if kind == "bf16" else tensor


def to_numpy(tensor):
    tensor = tensor.detach().cpu().contiguous()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
