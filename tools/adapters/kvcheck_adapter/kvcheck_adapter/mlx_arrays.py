"""For libraries whose arrays are MLX's: numpy's arrays of this package as MLX's, and back, and the plan of its attention.
Imports mlx, so it is imported by adapters alone."""
import math

import mlx.core as mx
import numpy as np

TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def to_mlx(array, kind):
    made = mx.array(array)
    return made.view(mx.bfloat16) if kind == "bf16" else made


def to_numpy(array):
    if array.dtype == mx.bfloat16:
        return np.frombuffer(memoryview(array).tobytes(), np.uint16).reshape(array.shape)
    return np.array(array)


def is_power_of_two(scale):
    return scale > 0 and math.frexp(scale)[0] == 0.5


def sdpa_plan(kind, scale):
    """mx.fast.scaled_dot_product_attention on the CPU (reference/spec/known_plans.cc)."""
    plan = f"base=mlx_cpu_sdpa_{kind}"
    if is_power_of_two(scale):  # then scaling is exact
        plan += " scale_roundings=0" if kind == "f32" else " prescale=none"
    return plan
