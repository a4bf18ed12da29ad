// The first pass over a pair of stored tensors: proves that elements pass their rule, and measures.
// It never decides a failure: what it cannot prove is for the judge (reference/judge), which it
// must agree with. What is proved, and how, stands in first_pass.md.

#ifndef OPTIMIZED_COMPARE_FIRST_PASS_H_
#define OPTIMIZED_COMPARE_FIRST_PASS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "optimized/compare/binned_sum.h"
#include "reference/spec/dtype.h"

namespace kvcheck {

enum class PassNan : uint8_t {
  kFail,       // NaN never passes
  kEqual,      // NaN matches every NaN
  kEqualBits,  // NaN matches the same bits
};

// The rules of reference/judge/tensor_source.h.
struct PassRule {
  enum class Kind : uint8_t { kExact, kUlp, kAbsRel };
  Kind kind = Kind::kExact;
  int64_t ulps = 0;     // kUlp: not negative
  double absolute = 0;  // kAbsRel: not negative
  double relative = 0;
  PassNan nan = PassNan::kFail;
  bool operator==(const PassRule&) const = default;
};

struct PassSummary {
  int64_t elements = 0;
  int64_t unlike_bits = 0;    // elements whose codes differ
  int64_t not_certified = 0;  // elements that are not proved to pass
  // Pairs that are not two numbers, by kind.
  int64_t both_nan = 0;
  int64_t expected_nan = 0;  // a number observed
  int64_t observed_nan = 0;
  int64_t same_infinity = 0;
  int64_t opposite_infinities = 0;
  int64_t expected_infinity = 0;  // a finite number observed
  int64_t observed_infinity = 0;
  int64_t no_code = 0;  // a byte on either side that the type does not define
  int64_t zeros_of_two_signs = 0;
  // Finite pairs whose tolerance may exceed a tenth of the expected value: where they are more than
  // half, the judge may call the comparison vacuous. Never fewer than the judge counts.
  int64_t loose = 0;
  bool any_nonzero = false;
  // Over the pairs of finite numbers, with got - expected rounded to double, as in
  // reference/judge/metrics.h and equal to it.
  double max_abs = 0;
  double max_rel = 0;  // infinite for an error where 0 is expected
  double max_ulp = 0;  // spacings of the type at the expected value; integers: 1
  BinnedSum squared_error;

  int64_t FinitePairs() const;
  // sqrt(mean of squared errors), within 2^-22.
  double RmsAbs() const { return squared_error.RootMean(FinitePairs()); }
  // The judge would pass the tensor: every element does, and the tolerance is no more than a tenth
  // of the data for at least half of it.
  bool ProvesPass() const {
    return elements > 0 && not_certified == 0 && 2 * loose <= FinitePairs();
  }
  // Parts of one tensor, in any order and grouping.
  void Merge(const PassSummary& other);
  bool operator==(const PassSummary&) const = default;
};

// Windows of one tensor begin at multiples of so many elements; then their merged summaries do not
// depend on where it was cut.
inline constexpr int64_t kPassBlockElements = 4096;

// Compares two spans of the same number of elements, on one thread, at any alignment; the result is
// the same on every instruction set.
PassSummary ComparePass(DType dtype, std::span<const std::byte> expected,
                        std::span<const std::byte> got, const PassRule& rule);

}  // namespace kvcheck

#endif  // OPTIMIZED_COMPARE_FIRST_PASS_H_
