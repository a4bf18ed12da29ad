// Pairs of tensors drawn to reach every branch of the first pass: ordinary values with errors far
// below, at and just beyond the tolerance, and the special codes of each type.

#ifndef TESTS_OPTIMIZED_COMPARE_DRAWN_PAIRS_H_
#define TESTS_OPTIMIZED_COMPARE_DRAWN_PAIRS_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "optimized/compare/first_pass.h"
#include "reference/spec/dtype.h"

namespace kvcheck {

enum class PairRegime {
  kEqual,
  kInside,    // within the tolerance, mostly by far
  kAtBorder,  // at the tolerance, and the codes next to it
  kSpecial,   // a few NaN, infinities, zeros of two signs, bytes without meaning among kInside
  kTiny,      // subnormal and smallest values, zeros
  kHuge,      // near the largest value
  kAnything,  // any code beside any code
};
inline constexpr PairRegime kPairRegimes[] = {
    PairRegime::kEqual, PairRegime::kInside, PairRegime::kAtBorder, PairRegime::kSpecial,
    PairRegime::kTiny,  PairRegime::kHuge,   PairRegime::kAnything};
std::string Name(PairRegime regime);

struct CodePair {
  std::vector<std::byte> expected;
  std::vector<std::byte> got;
};

// The expected side holds only codes of the type.
CodePair DrawPairs(DType dtype, const PassRule& rule, PairRegime regime, size_t elements,
                   std::mt19937_64& random);

// Rules of every kind, with tolerances around what the type resolves.
std::vector<PassRule> DrawnRules(DType dtype);
std::string Print(const PassRule& rule);

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_COMPARE_DRAWN_PAIRS_H_
