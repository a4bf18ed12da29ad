"""A mask over the keys alone, which broadcasts with the scores, is refused unless the math path is asked for."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

q, k = torch.ones(1, 1, 2, 8), torch.ones(1, 1, 3, 8)
for mask in (torch.tensor([True, True, False]), torch.zeros(3)):
    try:
        torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)
    except IndexError as error:
        print("as dispatched: IndexError:", error)
    with sdpa_kernel(SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)
        print("math:", list(out.shape))
