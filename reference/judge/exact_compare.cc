#include "reference/judge/exact_compare.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/numerics/kulisch.h"

namespace kvcheck {
namespace {

constexpr int kTerms = 6;

struct SumAndRest {
  double sum;
  double rest;
};

// sum + rest == a + b exactly, unless the sum overflows (Knuth).
SumAndRest TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  const double a_part = sum - b_part;
  return {sum, (a - a_part) + (b - b_part)};
}

// Sign of the exact sum: a nonoverlapping expansion grown term by term (Shewchuk 1997, theorem 10),
// whose most significant nonzero component decides.
int SignOfSum(const std::array<double, kTerms>& terms) {
  std::array<double, kTerms> expansion{};
  int size = 0;
  for (const double term : terms) {
    double carried = term;
    for (int i = 0; i < size; ++i) {
      const SumAndRest step = TwoSum(carried, expansion[static_cast<size_t>(i)]);
      expansion[static_cast<size_t>(i)] = step.rest;
      carried = step.sum;
    }
    expansion[static_cast<size_t>(size++)] = carried;
  }
  for (int i = size; i-- > 0;) {
    const double component = expansion[static_cast<size_t>(i)];
    if (component != 0) return component > 0 ? 1 : -1;
  }
  return 0;
}

bool IsWithinExactly(Parts got, Parts expected, double bound, double slack) {
  std::array<double, kTerms> above = {got.high,      got.low, -expected.high,
                                      -expected.low, -bound,  -slack};
  std::array<double, kTerms> below = {-got.high,    -got.low, expected.high,
                                      expected.low, -bound,   -slack};
  double largest = 0;
  for (const double term : above) largest = std::max(largest, std::fabs(term));
  if (largest > 0x1p1000) {
    for (double& term : above) term *= 0x1p-60;
    for (double& term : below) term *= 0x1p-60;
  }
  return SignOfSum(above) <= 0 && SignOfSum(below) <= 0;
}

}  // namespace

double ErrorOf(Parts got, Parts expected) {
  const SumAndRest high = TwoSum(got.high, -expected.high);
  // Not finite beyond the range of double, or where a step of TwoSum was, beside its end.
  if (!std::isfinite(high.rest)) return high.sum;
  return high.sum + ((high.rest + got.low) - expected.low);
}

bool IsWithin(Parts got, Parts expected, double bound, double slack) {
  const double sizes =
      std::fabs(got.high) + std::fabs(got.low) + std::fabs(expected.high) + std::fabs(expected.low);
  const double tolerance = bound + slack;
  if (std::isnan(sizes) || std::isinf(got.high) || std::isinf(expected.high)) return false;
  if (std::isnan(tolerance)) return false;
  if (std::isinf(bound) || std::isinf(slack)) return true;
  const SumAndRest high = TwoSum(got.high, -expected.high);
  const bool is_exact =
      high.rest == 0 && got.low == 0 && expected.low == 0 && std::isfinite(high.sum);
  // The usual case of stored values, where neither side was rounded.
  if (is_exact && (bound == 0 || slack == 0)) return std::fabs(high.sum) <= tolerance;
  const double error = std::fabs(ErrorOf(got, expected));
  // ErrorOf is off by at most three roundings of quantities below error + |low parts|, the
  // tolerance by one; 2^-50 and the smallest normal cover both. Between the two lines the exact
  // sign decides.
  const double doubt =
      0x1p-50 * (error + std::fabs(got.low) + std::fabs(expected.low) + tolerance) + 0x1p-1022;
  if (error + doubt < tolerance) return true;
  if (error - doubt > tolerance) return false;
  return IsWithinExactly(got, expected, bound, slack);
}

bool IsWithinProducts(Parts got, Parts expected,
                      std::span<const std::pair<double, double>> products) {
  for (const double side : {1.0, -1.0}) {
    KulischAccumulator excess;
    for (const double term : {got.high, got.low, -expected.high, -expected.low}) {
      excess.Add(side * term);
    }
    for (const auto& [a, b] : products) excess.AddProduct(-a, b);
    if (!excess.IsFinite() || excess.Sign() > 0) return false;
  }
  return true;
}

}  // namespace kvcheck
