"""The centroids that vLLM's TurboQuant computes, without torch: a transcription of solve_lloyd_max in
vllm/model_executor/layers/quantization/turboquant/centroids.py (main, commit 06d0369d75e060e83dffac3e0190ceff8fc37e12):
Lloyd's iteration in float64 for a normal distribution of variance 1/d by the trapezoidal rule with 200 intervals a cell, from
equally spaced centroids within 3.5 standard deviations, the outermost cells ending at 10.5; at most 200 steps, until none moves
by 1e-10. Rounded to float32.

    vllm_centroids.py D BITS    the 2^BITS centroids, one a line, as numbers and as bits
"""
import math
import struct
import sys


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def mean(density, low, high, intervals=200):
    """The centroid of a cell by the trapezoidal rule; None where nothing is in it."""
    width = (high - low) / intervals
    sums = []
    for function in (lambda x: x * density(x), density):
        total = 0.5 * (function(low) + function(high))
        for i in range(1, intervals):
            total += function(low + i * width)
        sums.append(total * width)
    return sums[0] / sums[1] if sums[1] > 1e-15 else None


def centroids(d, bits, steps=200, tolerance=1e-10):
    variance = 1.0 / d
    sigma = math.sqrt(variance)

    def density(x):
        return (1.0 / math.sqrt(2 * math.pi * variance)) * math.exp(-x * x / (2 * variance))

    count = 2**bits
    low, high = -3.5 * sigma, 3.5 * sigma
    now = [low + (high - low) * (i + 0.5) / count for i in range(count)]
    for _ in range(steps):
        edges = [low * 3] + [(a + b) / 2.0 for a, b in zip(now, now[1:])] + [high * 3]
        found = [mean(density, a, b) for a, b in zip(edges, edges[1:])]
        found = [old if new is None else new for old, new in zip(now, found)]
        if max(abs(new - old) for old, new in zip(now, found)) < tolerance:
            break
        now = found
    return [float32(value) for value in now]


def main(arguments):
    for value in centroids(int(arguments[0]), int(arguments[1])):
        print(f"{value!r} {struct.pack('>f', value).hex()}")


if __name__ == "__main__":
    main(sys.argv[1:])
