"""MX formats: elements e2m1, e4m3 or e5m2, times a power of two a block."""
import numpy as np

from . import block_floats
from .block_floats import LARGEST, rounded

BIAS = 127


class Mx(block_floats.Blocks):
    """mxfp4:TYPE, mxfp4:g16:TYPE, mxfp8:e4m3:TYPE, mxfp8:e5m2:TYPE."""

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name == "mxfp4" and len(parts) in (1, 2) and parts[:-1] in ([], ["g16"]):
            return block_floats.make(text, 4, 16 if len(parts) == 2 else 32, parts[-1], Mx)
        if name == "mxfp8" and len(parts) == 2 and parts[0] in ("e4m3", "e5m2"):
            return block_floats.make(text, 8, 32, parts[1], Mx)
        return None

    @staticmethod
    def element(fmt):
        return "e2m1" if fmt.bits == 4 else fmt.text.split(":")[1]

    @staticmethod
    def scales(fmt, stored):
        powers = np.exp2(np.arange(256, dtype=np.float64) - BIAS).astype(np.float32)
        powers[255] = np.nan
        return powers[stored]

    @staticmethod
    def writer(fmt, x, mx_encode="ocp"):
        """mx_encode: ocp, up, mlx, mlx_0_31, sglang."""
        a = np.abs(x).max(-1)
        largest = np.float32(LARGEST[Mx.element(fmt)])
        if mx_encode == "ocp":
            top = int(np.log2(largest))
            exponents = np.where(a == 0, -BIAS, np.maximum(np.frexp(a)[1] - 1 - top, -BIAS))
        elif mx_encode == "up":
            mantissas, exponents = np.frexp(a / largest)
            exponents = np.clip(np.where(mantissas == 0, -BIAS, exponents - (mantissas == 0.5)), -BIAS, BIAS)
        elif mx_encode == "sglang":
            exponents = np.ceil(_log2(np.maximum(a / largest, np.float32(1e-10))))
        else:
            q = rounded(a / largest, fmt.type)
            logs = _log2(np.where(q == 0, np.float32(1), q))
            exponents = np.ceil(logs) if mx_encode == "mlx" else np.rint(rounded(logs, fmt.type))
        exponents = exponents.astype(np.int64)
        positions = np.ldexp(x.astype(np.float64), -exponents[..., None]).astype(np.float32)
        if mx_encode.startswith("mlx"):
            positions = rounded(positions, fmt.type)
        ties = {"ocp": "even", "up": "even", "sglang": "up"}.get(mx_encode, "down")
        return ((exponents + BIAS) % 256).astype(np.uint8), positions, ties


def _log2(q):
    return np.log2(q.astype(np.float64)).astype(np.float32)
