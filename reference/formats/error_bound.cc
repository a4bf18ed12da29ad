#include "reference/formats/error_bound.h"

#include "reference/formats/plain.h"

namespace kvcheck {

std::vector<std::string> BoundTerms(const KvFormat& format) {
  return ArithmeticOf(format)->Terms();
}

RowBound RoundTripBound(const KvFormat& format, const RoundTripQuestion& question,
                        std::span<const double> x) {
  const auto arithmetic = ArithmeticOf(format);
  RowBound bound;
  bound.total.assign(x.size(), 0.0);
  bound.overflows.assign(x.size(), false);
  bound.undefined.assign(x.size(), false);
  bound.wrong_code.assign(x.size(), 0.0);
  bound.terms.assign(arithmetic->Terms().size(), std::vector<double>(x.size(), 0.0));
  arithmetic->Bound(question, x, &bound);
  return bound;
}

RowBound RoundTripBound(const KvFormat& format, const Profile& profile, DecodeRounding decode,
                        DType x_dtype, std::optional<DType> read, std::span<const double> x) {
  return RoundTripBound(format, {profile, decode, x_dtype, read}, x);
}

RowBound RoundTripBound(const KvFormat& format, const Profile& profile, DecodeRounding decode,
                        DType x_dtype, std::span<const double> x) {
  const std::optional<DType> read = IsPlain(format) ? std::optional(x_dtype) : std::nullopt;
  return RoundTripBound(format, {profile, decode, x_dtype, read}, x);
}

std::vector<double> PartsBound(const KvFormat& format, const Profile& profile, DType x_dtype,
                               std::span<const double> x) {
  return ArithmeticOf(format)->Parts(
      profile, x, RoundTripBound(format, profile, DecodeRounding::kExact, x_dtype, x).total);
}

std::vector<double> OriginalErrorBound(const KvFormat& format, const Profile& profile,
                                       DType x_dtype, std::span<const double> x) {
  std::optional<DType> read;
  if (IsPlain(format)) {
    // Attention reads the stored value itself: no second rounding.
    const DType stored = RowDType(format);
    read = Holds(x_dtype, stored) ? x_dtype : DType::kFloat64;
  }
  return RoundTripBound(format, {profile, profile.decode, x_dtype, read}, x).total;
}

}  // namespace kvcheck
