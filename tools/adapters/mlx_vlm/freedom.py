"""What the format leaves open in stored bytes (reference/formats/formats.md, section E), taken as the definition has it.

A norm is the f16 of a sum of squares that MLX adds up in f32, in an order of its own; a coordinate within a narrow band of a
threshold may get either code. kvcheck compares bytes of tokens, so a stored vector that differs from the definition's encoding of an
appended one in nothing else is shown as that one, and counted; every other vector is shown as it is stored."""
import functools

import numpy as np

from kvcheck_adapter.channel import unpacked
from kvcheck_adapter.formats import parse_format
from kvcheck_adapter.split_turboquant import SplitTurboquant, halves
from kvcheck_adapter.storage import to_float32
from kvcheck_adapter.turboquant import hadamard, parameters

UNIT = 2.0**-24  # of f32


@functools.lru_cache(maxsize=64)
def parts_of(text):
    """((format of whole bits, its channels of a vector), ...)."""
    fmt = parse_format(text)
    if fmt.family is SplitTurboquant:
        return halves(text)
    return ((fmt, np.arange(fmt.group)),)


class Known:
    """The vectors appended so far, as the definition stores them in each format that is asked about."""

    def __init__(self):
        self.vectors = []  # (channels,) float32, of the row type
        self.encoded = {}  # by format: (how many of the vectors, {bytes of words and norms}, words, norms)
        self.taken = 0  # vectors shown as the definition has them

    def learn(self, vectors, kind):
        """vectors: (..., channels) of the row type `kind`."""
        values = to_float32(vectors, kind).reshape(-1, vectors.shape[-1])
        self.vectors.extend(values[np.isfinite(values).all(-1)])

    def encodings(self, text):
        count, exact, words, norms = self.encoded.get(text, (0, set(), [], []))
        fresh = self.vectors[count:]
        if fresh:
            # Row by row: of another width than the format's come those of a wrong call.
            width = sum(len(channels) for _, channels in parts_of(text))
            fresh = [vector for vector in fresh if len(vector) == width]
        if fresh:
            new_words, new_norms = parse_format(text).encode(np.stack(fresh))
            words, norms = words + list(new_words), norms + list(new_norms)
            exact = exact | {w.tobytes() + n.tobytes() for w, n in zip(new_words, new_norms)}
        self.encoded[text] = (len(self.vectors), exact, words, norms)
        return exact, words, norms

    def shown(self, text, words, norms):
        """words (..., W), norms (..., G): the same arrays, or copies in which freedom is gone."""
        exact, known_words, known_norms = self.encodings(text)
        flat_words, flat_norms = words.reshape(-1, words.shape[-1]), norms.reshape(-1, norms.shape[-1])
        changed = {}
        for i, (w, n) in enumerate(zip(flat_words, flat_norms)):
            if not n.astype(np.float32).any() or w.tobytes() + n.tobytes() in exact:
                continue  # padding that an extend made has norm 0
            found = self.definition_of(text, w, n, known_words, known_norms)
            if found is not None:
                changed[i] = found
        if not changed:
            return words, norms
        self.taken += len(changed)
        flat_words, flat_norms = flat_words.copy(), flat_norms.copy()
        for i, (w, n) in changed.items():
            flat_words[i], flat_norms[i] = w, n
        return flat_words.reshape(words.shape), flat_norms.reshape(norms.shape)

    def definition_of(self, text, words, norms, known_words, known_norms):
        width = sum(len(channels) for _, channels in parts_of(text))
        vectors = [vector for vector in self.vectors if len(vector) == width]
        for vector, w, n in zip(vectors, known_words, known_norms):
            steps = norms.view(np.uint16).astype(int) - n.view(np.uint16).astype(int)
            if (np.abs(steps) <= 1).all() and may_be(text, vector, words, norms, w, n):
                return w, n
        return None


def may_be(text, vector, words, norms, known_words, known_norms):
    """Whether an encoder may store the vector so, where the definition stores known_words and known_norms."""
    at = 0
    for index, (fmt, channels) in enumerate(parts_of(text)):
        x = vector[channels].astype(np.float64)
        d, width = len(channels), len(channels) * fmt.bits // 32
        n = np.sqrt((x * x).sum())
        got, own = unpacked(words[at:at + width], fmt.bits), unpacked(known_words[at:at + width], fmt.bits)
        at += width
        if norms[index] != known_norms[index]:
            spread = (d / 2 + 2) * UNIT
            ends = np.float32([n * (1 - spread), n * (1 + spread)]).astype(np.float16)
            if norms[index] not in ends:
                return False
        off = np.flatnonzero(got != own)
        if not len(off):
            continue
        if (np.abs(got - own)[off] > 1).any():
            return False
        centroids, signs = parameters(fmt.text)
        y = hadamard(x / max(n, 1e-6) * signs) / np.sqrt(d)
        low = np.minimum(got, own)[off]
        thresholds = (centroids[low].astype(np.float64) + centroids[low + 1]) / 2
        if (np.abs(y[off] - thresholds) > 2.0**-18 / np.sqrt(d)).any():
            return False
    return True

