// Plain rows: every element is rounded on its own, to its type, by the profile's rule of overflow.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/formats/format_arithmetic.h"
#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
enum PlainTerm { kFormat, kSaturation, kPlainRow };

// How near to x the neighbours of y come, y being the nearest value of the type.
double NextValue(DType dtype, double x, double y) {
  const double spacing = 2 * HalfSpacing(dtype, y);
  int exponent = 0;
  const bool half = std::fabs(std::frexp(y, &exponent)) == 0.5 &&
                    std::fabs(y) > FloatTypeOf(dtype).smallest_normal;
  const double outward = std::fabs(x) - std::fabs(y);  // exact: they are near each other
  return std::min(spacing - outward, (half ? spacing / 2 : spacing) + outward);
}

void BoundPlainElement(DType stored, const Profile& profile, DType given, DType read, double x,
                       size_t i, RowBound* bound) {
  // One rounding of a known rule: whether it overflows is not a matter of bounds.
  if (!std::isfinite(x) || !std::isfinite(PlainRoundTrip(stored, read, profile, x))) {
    bound->overflows[i] = true;
    bound->total[i] = kInfinity;
    return;
  }
  const double beyond = std::fabs(x) - FloatTypeOf(stored).largest_finite;
  double total = 0;
  if (!Holds(stored, given)) {
    const double half = HalfSpacing(stored, x);
    const bool saturated = beyond > half;
    bound->terms[saturated ? kSaturation : kFormat][i] = saturated ? beyond : half;
    total += saturated ? beyond : half;
  }
  if (!Holds(read, stored)) {
    const double half = HalfSpacing(read, std::fabs(x) + total);
    bound->terms[kPlainRow][i] = half;
    total += half;
  }
  bound->total[i] = total;  // powers of two and one exact difference
  const double y = RoundTo(stored, x, StoreRule(stored, profile));
  const double rounding = bound->terms[kPlainRow][i];
  bound->wrong_code[i] = std::max(0.0, NextValue(stored, x, y) - 2 * rounding);
}

class PlainRows : public RowArithmetic {
 public:
  PlainRows(DType dtype, const Profile& profile)
      : dtype_(dtype), rule_(StoreRule(dtype, profile)) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    EncodeFrom(x, dtype_, stored[0], rule_);
  }
  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    DecodeToRowType(stored, hi);
    std::fill(lo.begin(), lo.end(), 0.0);
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    DecodeBytes(stored[0], dtype_, out);
  }

 private:
  DType dtype_;
  ConvertRule rule_;
};

class PlainArithmetic : public FormatArithmetic {
 public:
  explicit PlainArithmetic(const PlainFormat& format) : dtype_(format.dtype) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t) const override {
    return std::make_unique<PlainRows>(dtype_, profile);
  }
  std::vector<std::string> Terms() const override {
    return {"format rounding", "saturation", "row rounding"};
  }
  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    for (size_t i = 0; i < x.size(); ++i) {
      BoundPlainElement(dtype_, question.profile, question.given, question.read.value_or(dtype_),
                        x[i], i, bound);
    }
  }
  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    if (SizeInBytes(dtype_) != 1) return changes;
    AddChanges(profile, CodecChoice::kFp8Overflow, &changes);
    return changes;
  }
  void AddAlternatives(const Profile&, std::span<const double>,
                       std::vector<ExpectedTile>*) const override {}

  void SetStanding(const RoundTripQuestion& question, std::span<const double> x,
                   const RowBound& bound, size_t row, ExpectedTile* tile) const override {
    for (size_t i = 0; i < x.size(); ++i) {
      if (!bound.overflows[i]) continue;
      // Not a distance but a rule: NaN, infinity or the largest finite value, exactly.
      const size_t at = row * x.size() + i;
      tile->value[at] =
          PlainRoundTrip(dtype_, question.read.value_or(dtype_), question.profile, x[i]);
      tile->bound[at] = 0;
      if (std::isnan(x[i]) && std::isfinite(tile->value[at])) {
        tile->alternatives.push_back({.element = static_cast<int64_t>(at),
                                      .value = -tile->value[at],
                                      .any = false,
                                      .reason = kNanSign});
      }
    }
  }

 private:
  DType dtype_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const PlainFormat& format) {
  return std::make_unique<PlainArithmetic>(format);
}

}  // namespace kvcheck
