"""NVFP4: elements e2m1 times an e4m3 scale per 16 channels times one global scale, which the text names."""
import numpy as np

from . import block_floats
from .block_floats import VALUES, rounded
from .storage import from_float32

GROUP = 16


class Nvfp4(block_floats.Blocks):
    """nvfp4:TYPE, nvfp4:xGLOBAL_SCALE:TYPE."""

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        if name != "nvfp4" or len(parts) not in (1, 2) or (len(parts) == 2 and not parts[0].startswith("x")):
            return None
        return block_floats.make(text, 4, GROUP, parts[-1], Nvfp4)

    @staticmethod
    def element(fmt):
        return "e2m1"

    @staticmethod
    def global_scale(fmt):
        parts = fmt.text.split(":")
        return np.float32(parts[1][1:] if len(parts) == 3 else 1)

    @staticmethod
    def scales(fmt, stored):
        return VALUES["e4m3"][stored] * Nvfp4.global_scale(fmt)

    @staticmethod
    def writer(fmt, x, nvfp4_encode="mlx"):
        """nvfp4_encode: mlx, vllm, vllm_4over6; with correctly rounded reciprocals."""
        a = np.abs(x).max(-1)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if nvfp4_encode == "mlx":
                stored = _scale_bytes(rounded(a / np.float32(6), fmt.type) / Nvfp4.global_scale(fmt))
                scales = Nvfp4.scales(fmt, stored)[..., None]
                positions = np.where(scales == 0, np.float32(0), rounded(x / scales, fmt.type))
                return stored, positions, "down"
            stored, factors = _vllm(fmt, a, 6)
            if nvfp4_encode == "vllm_4over6":
                stored4, factors4 = _vllm(fmt, a, 4)
                four = _error(x, factors4) < _error(x, factors)
                stored, factors = np.where(four, stored4, stored), np.where(four, factors4, factors)
            return stored, x * factors[..., None], "even"


def _scale_bytes(scales):
    return from_float32(np.minimum(scales, np.float32(448)), "f8e4m3fn")


def _vllm(fmt, a, top):
    one = np.float32(1)
    encode_scale = one / Nvfp4.global_scale(fmt)
    stored = _scale_bytes(encode_scale * (a * (one / np.float32(top))))
    scales = VALUES["e4m3"][stored]
    return stored, np.where(scales == 0, np.float32(0), one / (scales * (one / encode_scale)))


def _error(x, factors):
    """Of squares, pair by pair in order, as one thread of the kernel sums them."""
    back = np.where(factors == 0, np.float32(0), np.float32(1) / factors)[..., None]
    elements = VALUES["e2m1"][block_floats.e2m1_codes(x * factors[..., None], "even")]
    squares = (elements * back - x) ** 2
    total = np.zeros(x.shape[:-1], np.float32)
    for i in range(0, x.shape[-1], 2):
        total = total + (squares[..., i] + squares[..., i + 1])
    return total
