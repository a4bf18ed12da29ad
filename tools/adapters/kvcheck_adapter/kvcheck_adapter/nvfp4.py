"""NVFP4: elements e2m1 times an e4m3 scale per 16 channels times one global scale, which the text names."""
import numpy as np

from . import block_floats
from .block_floats import VALUES, rounded
from .storage import from_float32

GROUP = 16
TOKENS = 4


class Nvfp4(block_floats.Blocks):
    """nvfp4[:swizzled][:xGLOBAL_SCALE]:TYPE. Swizzled: a row is TOKENS tokens, whose scales have the order of V on SM100."""

    @staticmethod
    def parse(text):
        name, *parts = text.split(":")
        swizzled = parts[:1] == ["swizzled"]
        parts = parts[1:] if swizzled else parts
        if name != "nvfp4" or len(parts) not in (1, 2) or (len(parts) == 2 and not parts[0].startswith("x")):
            return None
        return block_floats.make(text, 4, GROUP, parts[-1], SwizzledNvfp4 if swizzled else Nvfp4)

    @staticmethod
    def element(fmt):
        return "e2m1"

    @staticmethod
    def global_scale(fmt):
        factor = fmt.text.split(":")[-2]
        return np.float32(factor[1:] if factor.startswith("x") else 1)

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


class SwizzledNvfp4(Nvfp4):
    BLOCK = GROUP * TOKENS**2

    @staticmethod
    def of_token(fmt):
        return Nvfp4.parse(fmt.text.replace(":swizzled", ""))

    @classmethod
    def decode(cls, fmt, arrays):
        stored = np.asarray(arrays[1])
        quarter = stored.shape[-1] // TOKENS**2  # stored: (quarter of S, s in it, token)
        pages = stored.reshape(*stored.shape[:-1], TOKENS, quarter, TOKENS)
        return super().decode(fmt, [arrays[0], np.moveaxis(pages, -1, -3).reshape(stored.shape)])

    level = decode

    @classmethod
    def encode(cls, fmt, values, **writer):
        codes, scales = super().encode(fmt, values, **writer)
        tokens = scales.reshape(*scales.shape[:-1], TOKENS, TOKENS, -1)  # (token, quarter of S, s in it)
        return codes, np.moveaxis(tokens, -3, -1).reshape(scales.shape)


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
