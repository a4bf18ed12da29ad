"""The vectors of a trace, bit for bit those of reference/data/token_rows.h, which defines them.

K, V and queries of a token are a function of (seed, token, head, part) alone, so a recorded trace need not store what
was appended, and whoever judges it makes the vectors again.
"""
import numpy as np

INCREMENT = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64
KEY, VALUE, QUERY = 0, 1, 2
# bits of a channel's number, bits of the field it is cut from, and the unit: value = (2 n + 1) unit
FIELDS = {"f32": (23, 32, 2.0**-22), "f16": (11, 16, 2.0**-10), "bf16": (8, 16, 2.0**-7)}
STORED = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}


def mix(z):
    """The output function of SplitMix64, of an array of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def token_id(operation, row, column):
    return (operation << 40) | (row << 20) | column


def _starts(seed, tokens, heads, part):
    """States (tokens, heads)."""
    tokens = np.array([t & (2**64 - 1) for t in tokens], np.uint64)
    with np.errstate(over="ignore"):
        s = mix(np.array([seed], np.uint64) + INCREMENT)
        s = mix(s + INCREMENT + tokens)
        offsets = np.array([4 * h + part for h in heads], np.uint64)
        return mix(s[:, None] + INCREMENT + offsets)


def vectors(seed, tokens, heads, part, kind, dim):
    """(tokens, heads, dim) in storage type, bfloat16 as uint16 bits."""
    bits, field, unit = FIELDS[kind]
    per_word = 64 // field
    count = -(-dim // per_word)
    with np.errstate(over="ignore"):
        steps = np.arange(1, count + 1, dtype=np.uint64) * INCREMENT
        words = mix(_starts(seed, tokens, heads, part)[..., None] + steps)
    shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(field)
    fields = (words[..., None] >> shifts) & np.uint64(2**field - 1)
    numbers = (fields >> np.uint64(field - bits)).astype(np.int64)
    numbers = np.where(numbers < 2 ** (bits - 1), numbers, numbers - 2**bits)
    values = ((2 * numbers + 1) * unit).reshape(*words.shape[:-1], count * per_word)[..., :dim]
    if kind == "bf16":  # eight bits and a power of two: the low half of the float32 is zero
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.ascontiguousarray(values, STORED[kind])


def padding(shape, kind):
    """What padding columns hold: a quiet NaN of all ones."""
    stored = np.dtype(STORED[kind])
    return np.frombuffer(b"\xff" * int(np.prod(shape)) * stored.itemsize, stored).reshape(shape)


def sinks(seed, heads):
    """The attention sink of each query head, float32."""
    with np.errstate(over="ignore"):
        words = mix(_starts(seed, [2**64 - 1], range(heads), QUERY)[0] + INCREMENT)
    numbers = (words & np.uint64(2**32 - 1)).astype(np.uint32).astype(np.int32).astype(np.int64) >> 9
    return ((2 * numbers + 1) * 2.0**-22).astype(np.float32)
