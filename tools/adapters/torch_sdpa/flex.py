"""flex_attention of PyTorch for one case: masks as mask_mod and score_mod over arrays, compiled by Triton."""
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from kvcheck_adapter import Unsupported
from kvcheck_adapter.torch_arrays import to_numpy

# Past the limit of compilations PyTorch would quietly take a path of its own without Triton.
torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 100000
torch._dynamo.config.fail_on_recompile_limit_hit = True
COMPILED = torch.compile(flex_attention)
# Below so many queries flex_attention takes its kernel of decoding.
DECODING = 128


def modifiers(mask, is_causal, q, k):
    """(score_mod, block_mask) of a mask: None, is_causal (top left), or an array that broadcasts to (B, Hq, L, T)."""
    batch, heads, queries, keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]

    def block_mask(visible):
        return create_block_mask(visible, batch, heads, queries, keys, device="cuda")
    if is_causal:
        return None, block_mask(lambda b, h, i, j: i >= j)
    if mask is None:
        return None, None
    wide = mask.cuda().expand(batch, heads, queries, keys)
    if wide.dtype == torch.bool:
        return None, block_mask(lambda b, h, i, j: wide[b, h, i, j])
    return (lambda score, b, h, i, j: score + wide[b, h, i, j]), None


def flex_answer(fields, q, k, v, mask, is_causal, scale):
    """The plan under which flex_attention computes the case, and its answer. Errors: Unsupported for what it refuses."""
    if min(q.shape[3], v.shape[3]) < 16:
        raise Unsupported("flex_attention wants 16 channels at least")
    score_mod, block_mask = modifiers(mask, is_causal, q, k)
    try:
        out, lse = COMPILED(q, k, v, score_mod=score_mod, block_mask=block_mask, scale=scale,
                            enable_gqa=q.shape[1] != k.shape[1], return_lse=True)
    except (NotImplementedError, ValueError) as error:
        raise Unsupported(str(error).splitlines()[0]) from None
    low = "_f32" if q.dtype == torch.float32 else ""
    plan = f"base=torch_flex_decoding{low}" if q.shape[2] < DECODING else f"base=torch_flex_attention{low}"
    answer = {"out": to_numpy(out)}
    if fields.get("lse", "none") == "natural":
        answer["lse"] = to_numpy(lse)
    return plan, answer
