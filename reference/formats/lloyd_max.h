// The optimal scalar quantiser of a coordinate of a random unit vector, to 40 digits: what the
// exact codebook of turboquant is rounded from.
//
// Definition: y is a coordinate of a vector that is uniform on the unit sphere of d dimensions. Its
// density is f(x) = C (1 - x^2)^((d-3)/2) on [-1, 1]. Of 2^bits centroids, symmetric about 0, the
// positive ones g_0 < g_1 < ... have the cells [e_i, e_{i+1}] with e_0 = 0, e_i = (g_{i-1} + g_i) /
// 2 and 1 at the end, and each is the mean of its cell: g_i P_i = A_i, where P_i and A_i are the
// integrals of f and of x f over the cell. From d = 4 on f is log-concave, so that there is one
// solution and it is the minimum (Fleischer, "Sufficient conditions for achieving minimum
// distortion in a quantizer", 1964).
// Source: formats.md, section E; TurboQuant, arXiv 2504.19874.

#ifndef REFERENCE_FORMATS_LLOYD_MAX_H_
#define REFERENCE_FORMATS_LLOYD_MAX_H_

#include <span>
#include <vector>

#include "reference/numerics/oracle.h"

namespace kvcheck {

struct LloydMax {
  std::vector<Oracle50> centroids;  // the positive ones, ascending
  Oracle50 distortion;              // d E (y - centroid)^2, the mean squared error of a unit vector
  Oracle50 residual;                // the largest |g_i P_i - A_i|
};

// Preconditions: d >= 2, 1 <= bits <= 8.
LloydMax SolveLloydMax(int d, int bits);

// All 2^bits centroids ascending, each rounded to f32, one side the mirror of the other. Solved
// once. Thread-safe.
std::span<const float> LloydMaxCodebook(int d, int bits);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_LLOYD_MAX_H_
