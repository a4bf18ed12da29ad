"""The plan of attention in the rotated domain, of one query a row.

The library rotates q instead of reading K back, multiplies sums of products with centroids by the norms, sums centroids of V under
weights times norms, and rotates the result back: dequantize=rotated:1, whose one rounding of a decoded value is the product with its
norm. Sums over channels and over keys are matrix products of MLX in an order of its own, no deeper than they are long; a codec of half
a bit is two rotations, whose scores add up within that.
"""
from kvcheck_adapter.mlx_arrays import is_power_of_two


def plan(channels, tokens, kind, scale, is_masked):
    """channels: of K; tokens: columns of the cache; kind: type of q."""
    # q is multiplied by the scale in its own type, as which the scale was rounded before; then the product with the norm.
    exact, low = is_power_of_two(scale), kind != "f32"
    prescale = f"{kind}:2" if low and not exact else "none"
    roundings = 1 if low or exact else 3
    return (f"base=stranger dequantize=rotated:1 qk=f32:depth:{channels} pv=f32:depth:{max(1, tokens)} prescale={prescale} "
            f"scale_roundings={roundings} scores=f32 p=f32 p_normalised={'no' if is_masked else 'yes'} block=all merge=none")
