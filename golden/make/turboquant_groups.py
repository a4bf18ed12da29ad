"""TurboQuant's MSE codec in numpy, a second writing beside the C++ of the project and beside mlx-vlm: what check_golden.py holds
golden files to. Text: turboquant:BITS:gGROUP[:CODEBOOK][:SIGNS]:ROW_TYPE; turboquant=mlx_vlm of the profile.

With half a bit, turboquant:BITS.5:gGROUP[:CODEBOOK]:hHIGH[:sSEED]:ROW_TYPE, rows of one group are two rows of half the group, put
together here. Of the inner-product codec, turboquant:prod:BITS:gGROUP[:CODEBOOK][:sSEED]:ROW_TYPE, a row of one group has codes of
BITS - 1 and signs, judged in float64 given its codes."""
import functools

import numpy as np

# mlx-vlm 0.7.10 with numpy 2.4.6, AVX-512 (reference/formats/formats.md, section E).
MLX_VLM = {
    (32, 1): (-0.142153457, 0.142153457),
    (32, 2): (-0.263283283, -0.0797833353, 0.0797833279, 0.263283253),
    (32, 3): (-0.366082758, -0.232249171, -0.131584182, -0.042783916, 0.0427839197, 0.131584182, 0.232249156, 0.366082788),
    (32, 4): (-0.451370984, -0.347407967, -0.273894668, -0.213596851, -0.160627723, -0.112123966, -0.0662934035,
              -0.0219310429, 0.0219310466, 0.0662934035, 0.112123966, 0.160627708, 0.213596821, 0.273894668, 0.347407997,
              0.451370984),
    (64, 1): (-0.100125924, 0.100125916),
    (64, 2): (-0.187454462, -0.0564936958, 0.0564936958, 0.187454447),
    (64, 3): (-0.263751388, -0.16599451, -0.0936825648, -0.0304045826, 0.0304045826, 0.0936825797, 0.16599454, 0.263751388),
    (64, 4): (-0.329139471, -0.250963986, -0.196810395, -0.152957723, -0.114785776, -0.0800093561, -0.0472673103,
              -0.0156382024, 0.0156382024, 0.0472378992, 0.0799486786, 0.114725173, 0.152897239, 0.196750194, 0.2509045,
              0.32908535),
    (128, 1): (-0.0706615821, 0.0706615821),
    (128, 2): (-0.133020014, -0.0400136821, 0.0399245657, 0.132971659),
    (128, 3): (-0.188288108, -0.118012115, -0.0664799884, -0.0215943903, 0.0215034541, 0.0664204061, 0.117953412,
              0.188235566),
    (128, 4): (-0.236391634, -0.179339975, -0.140236318, -0.108817972, -0.0815755352, -0.0568183511, -0.03357042,
              -0.0111424848, 0.0110210404, 0.0334490128, 0.05672561, 0.0815149322, 0.108757496, 0.140176103, 0.17928043,
              0.236336887),
    (256, 1): (-0.0499552973, 0.0498777404),
    (256, 2): (-0.0942034945, -0.0282718651, 0.0282718595, 0.0942035019),
    (256, 3): (-0.133712366, -0.0836123973, -0.0470436104, -0.0152489953, 0.0152489971, 0.0470436178, 0.0836124048,
              0.133712366),
    (256, 4): (-0.168522865, -0.127540648, -0.0996119156, -0.0771940202, -0.0578124076, -0.0402186327, -0.0237036943,
              -0.00783268455, 0.00783268549, 0.0237036962, 0.0402186289, 0.0578124076, 0.0771940276, 0.0996119007,
              0.127540648, 0.168522835),
}


def matches(text):
    return text.startswith("turboquant:")


class Format:
    def __init__(self, text):
        _, bits, group, *rest = text.split(":")
        self.bits, self.d, self.kind = int(bits), int(group[1:]), rest[-1]
        self.codebook = next((part for part in rest[:-1] if part in ("mlx_vlm", "vllm")), "exact")
        seeds = [part for part in rest[:-1] if part[0] == "s" and part[1:].isdigit()]
        self.seed = int(seeds[0][1:]) if seeds else 0
        self.has_signs = "plain" not in rest

    @property
    def centroids(self):
        if self.codebook == "mlx_vlm":
            return np.array(MLX_VLM[self.d, self.bits], np.float32)
        return exact_centroids(self.d, self.bits)

    @property
    def signs(self):
        if not self.has_signs:
            return np.ones(self.d, np.float32)
        return np.random.default_rng(self.seed + 7919 * self.d).choice([-1.0, 1.0], self.d).astype(np.float32)


@functools.lru_cache(maxsize=None)
def exact_centroids(d, bits):
    """The Lloyd-Max optimum for (1 - x^2)^((d-3)/2) on [-1, 1] by Lloyd's iteration with Gauss-Legendre quadrature, in float64:
    enough digits for float32."""
    nodes, weights = np.polynomial.legendre.leggauss(120)
    found = (np.arange(2 ** (bits - 1)) + 0.5) / 2 ** (bits - 1) * min(1, 3.5 / np.sqrt(d))
    for _ in range(100_000):
        edges = np.concatenate([[0], (found[:-1] + found[1:]) / 2, [min(1, 9.5 / np.sqrt(d))]])
        half, middle = np.diff(edges)[:, None] / 2, (edges[:-1] + edges[1:])[:, None] / 2
        x = middle + half * nodes
        density = weights * np.exp((d - 3) / 2 * np.log1p(-x * x))
        new = (x * density).sum(-1) / density.sum(-1)
        done = np.abs(new - found).max() < 1e-15
        found = new
        if done:
            break
    return np.concatenate([-found[::-1], found]).astype(np.float32)


def hadamard(v):
    """Butterflies of strides 1, 2, 4, ..., in the type of v."""
    d, stride = v.shape[-1], 1
    while stride < d:
        pairs = v.reshape(*v.shape[:-1], -1, 2, stride)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        v = np.stack([low + high, low - high], -2).reshape(v.shape)
        stride *= 2
    return v


def pack(codes, bits):
    """(..., n) to u32 words: one stream of bits, the lowest first."""
    stream = (codes[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & np.uint8(1)
    packed = np.packbits(stream.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4")


def unpack(words, bits):
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    return (stream.reshape(*words.shape[:-1], -1, bits).astype(np.int64) << np.arange(bits)).sum(-1)


def mask_text(high):
    """Words of 32 channels, of a bool per channel."""
    words = np.packbits(np.asarray(high, bool), bitorder="little").view("<u4")
    return "".join(f"{word:08x}" for word in words)


def halves_of(text):
    """[(text, its channels), ...] of a format with half a bit, fewer bits first; None of another."""
    _, bits, group, *rest = text.split(":")
    if not bits.endswith(".5"):
        return None
    words = next(part[1:] for part in rest if part[0] == "h")
    seed = next((int(part[1:]) for part in rest[:-1] if part[0] == "s"), 0)
    codebook = [part for part in rest[:-1] if part in ("exact", "mlx_vlm", "vllm")]
    mask = np.array([int(words[i:i + 8], 16) for i in range(0, len(words), 8)], "<u4")
    high = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)
    return [(":".join(["turboquant", str(int(bits[:-2]) + one), f"g{int(group[1:]) // 2}", *codebook, f"s{seed + 97 * one}",
                       rest[-1]]), np.flatnonzero(high == bool(one))) for one in (0, 1)]


def planes_of_halves(words, norms, text):
    """(text, channels, its words, its norms) of each half of rows of one group."""
    at = 0
    for index, (half, channels) in enumerate(halves_of(text)):
        width = len(channels) * Format(half).bits // 32
        yield half, channels, words[..., at:at + width], norms[..., index:index + 1]
        at += width


def encode(x, text):
    """Words and norms (float16) of finite rows (..., head_dim), and the coordinates' distances from the nearest threshold in
    units of 1 / sqrt(d)."""
    if halves_of(text):
        parts = [encode(x[..., channels], half) for half, channels in halves_of(text)]
        return tuple(np.concatenate(plane, -1) for plane in zip(*parts))
    fmt = Format(text)
    rows = np.asarray(x, np.float32).reshape(*x.shape[:-1], -1, fmt.d)
    norms = np.sqrt((rows.astype(np.float64) ** 2).sum(-1)).astype(np.float32)
    unit = rows / np.maximum(norms, np.float32(1e-6))[..., None]
    y = hadamard(unit * fmt.signs) * np.float32(1 / np.sqrt(fmt.d))
    thresholds = (fmt.centroids[:-1] + fmt.centroids[1:]) / np.float32(2)
    codes = (y[..., None] > thresholds).sum(-1)
    exact = hadamard(rows.astype(np.float64) / np.maximum((rows.astype(np.float64) ** 2).sum(-1) ** 0.5, 1e-6)[..., None]
                     * fmt.signs) / np.sqrt(fmt.d)
    distance = np.abs(exact[..., None] - thresholds.astype(np.float64)).min(-1) * np.sqrt(fmt.d)
    shape = (*x.shape[:-1], -1)
    with np.errstate(over="ignore"):
        halves = norms.astype(np.float16)
    return pack(codes.reshape(shape), fmt.bits), halves.reshape(shape), distance.reshape(shape)


def decode(words, norms, text):
    """float32 of stored rows, before they are rounded to the row type."""
    if halves_of(text):
        parts = [(channels, decode(*planes, half)) for half, channels, *planes in planes_of_halves(words, norms, text)]
        values = np.empty((*words.shape[:-1], sum(len(channels) for channels, _ in parts)), np.float32)
        for channels, part in parts:
            values[..., channels] = part
        return values
    fmt = Format(text)
    codes = unpack(words, fmt.bits)
    centroids = fmt.centroids[codes].reshape(*codes.shape[:-1], -1, fmt.d)
    unit = hadamard(centroids) * np.float32(1 / np.sqrt(fmt.d)) * fmt.signs
    with np.errstate(invalid="ignore"):
        return (unit * np.asarray(norms, np.float16).astype(np.float32)[..., None]).reshape(codes.shape)


BAND = 2.0**-18


def is_right(x, words, norms, text):
    """Whether stored planes are those of rows: norms within one float16, codes equal but for neighbours at a threshold."""
    if halves_of(text):
        return all(is_right(x[..., channels], *planes, half) for half, channels, *planes in planes_of_halves(words, norms, text))
    fmt = Format(text)
    want_words, want_norms, distance = encode(x, text)
    spacing = np.spacing(np.abs(want_norms)).astype(np.float64)
    near = np.abs(np.asarray(norms, np.float16).astype(np.float64) - want_norms.astype(np.float64)) <= spacing
    got, want = unpack(words, fmt.bits), unpack(want_words, fmt.bits)
    return bool(near.all() and ((got == want) | ((np.abs(got - want) == 1) & (distance <= BAND))).all())


class Prod:
    """The inner-product codec of a text, one group a row."""

    def __init__(self, text):
        _, _, bits, group, *rest = text.split(":")
        self.bits, self.d = int(bits), int(group[1:])
        self.codes_text = ":".join(["turboquant", str(self.bits - 1), group, *rest]) if self.bits > 1 else None
        self.seed = next((int(part[1:]) for part in rest[:-1] if part[0] == "s" and part[1:].isdigit()), 0)
        self.projection = np.random.default_rng(self.seed + 1 + 2971 * self.d + 17).standard_normal((self.d, self.d), dtype=np.float32)

    def split(self, words):
        """(words of codes, words of signs)."""
        at = self.d * (self.bits - 1) // 32
        return words[..., :at], words[..., at:]

    def unit(self, words):
        """(Q(u) in float64, the sum of its centroids' magnitudes); of no codes zeros."""
        if self.codes_text is None:
            return np.zeros((*words.shape[:-1], self.d)), np.zeros((*words.shape[:-1], 1))
        fmt = Format(self.codes_text)
        centroids = fmt.centroids.astype(np.float64)[unpack(words, fmt.bits)]
        return hadamard(centroids) / np.sqrt(self.d) * fmt.signs, np.abs(centroids).sum(-1, keepdims=True)


def is_prod(text):
    return text.startswith("turboquant:prod:")


def prod_is_right(x, words, norms, residual_norms, text):
    """As is_right: signs equal but where float32 sums may lose a projection's own, residual norms within one float16."""
    prod = Prod(text)
    of_codes, of_signs = prod.split(words)
    want = np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True))
    near = np.abs(norms.astype(np.float64) - want) <= np.spacing(want.astype(np.float16)).astype(np.float64)
    if prod.codes_text is not None and not is_right(x, of_codes, norms, prod.codes_text):
        return False
    unit = x / np.maximum(want, 1e-6)
    read, centroids = prod.unit(of_codes)
    residual = unit - read
    d, u = prod.d, 2.0**-24
    levels = np.log2(d) if prod.codes_text else 0
    weight = ((d + 3) * np.abs(residual) + (d / 2 + 3) * np.abs(unit) + (levels + 2) * centroids / np.sqrt(d)) * u
    matrix = prod.projection.astype(np.float64)
    projected, band = residual @ matrix.T, weight @ np.abs(matrix).T * (1 + 2.0**-10)
    signs = unpack(of_signs, 1) == 1
    gamma = np.sqrt((residual**2).sum(-1, keepdims=True))
    gamma_near = np.abs(residual_norms.astype(np.float64) - gamma) <= np.spacing(gamma.astype(np.float16)).astype(np.float64)
    return bool(near.all() and gamma_near.all() and ((signs == (projected >= 0)) | (np.abs(projected) <= band)).all())


def decode_prod(words, norms, residual_norms, text):
    """(float64 values of stored rows, how far float32 of any order may be off)."""
    prod = Prod(text)
    of_codes, of_signs = prod.split(words)
    unit, centroids = prod.unit(of_codes)
    matrix = prod.projection.astype(np.float64)
    factor = np.sqrt(np.pi / 2) / prod.d * residual_norms.astype(np.float64)
    n = norms.astype(np.float64)
    values = n * (unit + factor * ((unpack(of_signs, 1) * 2.0 - 1) @ matrix))
    levels = np.log2(prod.d) if prod.codes_text else 0
    off = (levels + 4) * centroids / np.sqrt(prod.d) + (prod.d + 6) * factor * np.abs(matrix).sum(0)
    return values, n * off * 2.0**-24 * (1 + 2.0**-10)
