#!/usr/bin/env python3
"""Writes the table of the exact centroids in turboquant_centroids.h, by another way than reference/formats/lloyd_max.cc: mpmath's
regularised incomplete beta function in place of a recursion, and a root finder of its own for a whole cell after the other.

    make_turboquant_centroids.py    the rows of the table; needs mpmath
"""
import struct

from mpmath import beta, betainc, findroot, mp, mpf, sqrt

mp.dps = 30


def upper(d, x):
    """The probability of a coordinate above x >= 0."""
    return betainc(mpf(d - 1) / 2, mpf(1) / 2, 0, 1 - x * x, regularized=True) / 2


def moment(d, x):
    """The integral of x f(x) from x to 1."""
    constant = 1 / beta(mpf(d - 1) / 2, mpf(1) / 2)
    return constant / (d - 1) * (1 - x * x) ** (mpf(d - 1) / 2)


def last_residual(d, cells, first):
    """What a quantiser that starts with this centroid lacks at its end, with its centroids: each edge follows from the centroid
    before it, each centroid from the edge before it."""
    edge, centroid, found = mpf(0), first, [first]
    for i in range(cells):
        if i == cells - 1:
            return centroid * upper(d, edge) - moment(d, edge), found

        def lacking(high, low=edge, c=centroid):
            return c * (upper(d, low) - upper(d, high)) - (moment(d, low) - moment(d, high))

        # The mean of a cell lies about its middle.
        high = findroot(lacking, (2 * centroid - edge, 2 * centroid - edge + mpf("1e-3") / sqrt(d)), tol=1e-50)
        centroid, edge = 2 * high - centroid, high
        found.append(centroid)


def lloyd_iteration(d, cells, steps):
    """A start for the root finder."""
    found = [(i + mpf("0.5")) / cells * 3 / sqrt(d) for i in range(cells)]
    for _ in range(steps):
        edges = [mpf(0), *[(a + b) / 2 for a, b in zip(found, found[1:])], mpf(1)]
        tails, moments = [upper(d, e) for e in edges], [moment(d, e) for e in edges]
        found = [(moments[i] - moments[i + 1]) / (tails[i] - tails[i + 1]) for i in range(cells)]
    return found


def centroids(d, bits):
    cells = 2 ** (bits - 1)
    if cells == 1:
        return [2 * moment(d, mpf(0))]
    start = lloyd_iteration(d, cells, {2: 40, 4: 150, 8: 500, 16: 1500}[cells])
    first = findroot(lambda g: last_residual(d, cells, g)[0], (start[0], start[0] * (1 + mpf("1e-6"))), tol=1e-40)
    return last_residual(d, cells, first)[1]


def literal(x):
    value = struct.unpack("<f", struct.pack("<f", float(x)))[0]
    return f"{value:.9g}f"


if __name__ == "__main__":
    for d in (32, 64, 128, 256, 512):
        for bits in range(1, 6):
            print(f"    {{{', '.join(literal(c) for c in centroids(d, bits))}}},  // {d}, {bits}", flush=True)
