"""The second query sees no key. cuDNN, which is what half precision gets on Hopper, lets it see all of them."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

q = k = torch.zeros(1, 1, 2, 8, dtype=torch.bfloat16, device="cuda")
v = torch.tensor([1.0, 5.0], dtype=torch.bfloat16, device="cuda").reshape(1, 1, 2, 1).expand(1, 1, 2, 8).contiguous()
seen = torch.tensor([[True, False], [False, False]], device="cuda")
added = torch.zeros(2, 2, dtype=torch.bfloat16, device="cuda").masked_fill(~seen, float("-inf"))
for name, mask in (("boolean", seen), ("additive", added)):
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    print(name, "as dispatched:", out[0, 0, :, 0].tolist())
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        print(name, backend.name, out[0, 0, :, 0].tolist())
