// What kind of pair an expected and an observed value make, decided before any difference is taken:
// NaN, infinities, zeros of either sign, flushed subnormals and saturation. Each kind is counted,
// and the policy for it is stated here once.
//
// Policy.
//   both NaN            NanPolicy, per claim
//   one NaN             fails
//   same infinity       passes (an expected infinity is a value: the lse of a row without keys)
//   other infinities    fail, unless the reference lists the infinity as an alternative
//   zeros of two signs  equal for accuracy; different for conformance
//   not a code          fails (a byte which the type does not define)
//   everything else     judged by its difference; flushing and saturation are only counted

#ifndef REFERENCE_JUDGE_SPECIAL_VALUES_H_
#define REFERENCE_JUDGE_SPECIAL_VALUES_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

enum class NanPolicy : uint8_t {
  kFail,       // NaN never passes
  kEqual,      // an expected NaN matches every NaN
  kEqualBits,  // an expected NaN matches the same bits
};

std::string_view Name(NanPolicy policy);

struct SpecialPolicy {
  NanPolicy accuracy = NanPolicy::kEqual;
  NanPolicy conformance = NanPolicy::kEqual;
  bool operator==(const SpecialPolicy&) const = default;
};

enum class PairKind : uint8_t {
  kOrdinary,
  kBothNan,
  kObservedNan,
  kExpectedNan,
  kSameInfinity,
  kOppositeInfinities,
  kObservedInfinity,
  kExpectedInfinity,
  kZerosOfTwoSigns,
  kFlushed,     // observed 0 where the expected value is a subnormal of the output type
  kNotFlushed,  // observed a subnormal where 0 is expected
  kSaturated,   // observed the largest finite value where the expected value lies beyond it
  kNoCode,      // observed a byte that is no code of the type
};
inline constexpr int kPairKinds = 13;

// "NaN in both", "infinity observed, finite expected", ...
std::string_view Name(PairKind kind);

enum class PairDecision : uint8_t { kByDifference, kPasses, kFails };

// The facts of an output type that classification needs, looked up once per output.
class PairClassifier {
 public:
  explicit PairClassifier(DType dtype);
  // got: decoded from the output type; expected: any double.
  PairKind Classify(double got, double expected) const;

 private:
  bool is_float_;
  double largest_ = 0;
  double smallest_normal_ = 0;
  double rounds_to_zero_ = 0;  // expected values up to here have 0 as their nearest value
};

inline PairKind PairClassifier::Classify(double got, double expected) const {
  if (!std::isfinite(got) || !std::isfinite(expected)) {
    if (std::isnan(got)) return std::isnan(expected) ? PairKind::kBothNan : PairKind::kObservedNan;
    if (std::isnan(expected)) return PairKind::kExpectedNan;
    if (!std::isinf(expected)) return PairKind::kObservedInfinity;
    if (!std::isinf(got)) return PairKind::kExpectedInfinity;
    return (got > 0) == (expected > 0) ? PairKind::kSameInfinity : PairKind::kOppositeInfinities;
  }
  if (!is_float_) return PairKind::kOrdinary;
  if (got == 0) {
    if (expected == 0) {
      const bool same = std::signbit(got) == std::signbit(expected);
      return same ? PairKind::kOrdinary : PairKind::kZerosOfTwoSigns;
    }
    const double size = std::fabs(expected);
    return size < smallest_normal_ && size > rounds_to_zero_ ? PairKind::kFlushed
                                                             : PairKind::kOrdinary;
  }
  if (expected == 0) {
    return std::fabs(got) < smallest_normal_ ? PairKind::kNotFlushed : PairKind::kOrdinary;
  }
  if (std::fabs(got) == largest_ && std::fabs(expected) > largest_ &&
      std::signbit(got) == std::signbit(expected)) {
    return PairKind::kSaturated;
  }
  return PairKind::kOrdinary;
}

// bits_equal matters for kBothNan alone.
PairDecision Decide(PairKind kind, Claim claim, const SpecialPolicy& policy, bool bits_equal);

struct SpecialCounts {
  std::array<int64_t, kPairKinds> count{};

  void Add(PairKind kind) { ++count[static_cast<size_t>(kind)]; }
  int64_t Of(PairKind kind) const { return count[static_cast<size_t>(kind)]; }
  void Merge(const SpecialCounts& other);
  bool operator==(const SpecialCounts&) const = default;
};

// One line per kind that occurred, with the policy that applied: "NaN in both: 3 (equal)".
std::vector<std::string> Describe(const SpecialCounts& counts, Claim claim,
                                  const SpecialPolicy& policy);

// What to say of judged pairs whose most values are no finite numbers, so that next to nothing was
// compared; nullopt otherwise.
std::optional<std::string> FewFiniteWarning(int64_t judged, const SpecialCounts& counts);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_SPECIAL_VALUES_H_
