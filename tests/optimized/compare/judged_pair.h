// What the judge says about the tensors of a first pass.

#ifndef TESTS_OPTIMIZED_COMPARE_JUDGED_PAIR_H_
#define TESTS_OPTIMIZED_COMPARE_JUDGED_PAIR_H_

#include <cstddef>
#include <span>
#include <string>

#include "optimized/compare/first_pass.h"
#include "reference/judge/verdict.h"
#include "reference/spec/dtype.h"

namespace kvcheck {

OutputVerdict JudgeCodes(DType dtype, std::span<const std::byte> expected,
                         std::span<const std::byte> got, const PassRule& rule);

// How the summary differs from what the judge found: counts, kinds and maxima exactly, the RMS
// within what its sums may err. Empty when it does not.
std::string Disagreement(const PassSummary& pass, const OutputVerdict& verdict);

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_COMPARE_JUDGED_PAIR_H_
