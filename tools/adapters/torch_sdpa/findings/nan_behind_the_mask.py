"""A key that no query sees holds NaN in V: the outputs are NaN."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

q, k, v = torch.ones(1, 1, 2, 8), torch.ones(1, 1, 4, 8), torch.ones(1, 1, 4, 8)
v[:, :, 3] = torch.nan
seen = torch.tensor([True, True, True, False]).expand(2, 4)
for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
    with sdpa_kernel(backend):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    print(backend.name, out[0, 0, :, 0].tolist())
