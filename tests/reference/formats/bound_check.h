// Stores rows, reads them back and sets every error beside the bound that was computed beforehand.

#ifndef TESTS_REFERENCE_FORMATS_BOUND_CHECK_H_
#define TESTS_REFERENCE_FORMATS_BOUND_CHECK_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/formats/error_bound.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {

struct BoundCheck {
  int64_t judged = 0;
  int64_t without_bound = 0;  // may overflow
  int64_t violations = 0;
  double largest_ratio = 0;

  void Add(double error, double bound) {
    ++judged;
    violations += !(error <= bound) ? 1 : 0;
    if (bound > 0) largest_ratio = std::fmax(largest_ratio, error / bound);
  }
  void Add(const BoundCheck& other) {
    judged += other.judged;
    without_bound += other.without_bound;
    violations += other.violations;
    largest_ratio = std::fmax(largest_ratio, other.largest_ratio);
  }
};

// decode=exact compares the real number c S + B itself (both parts), the others the row type.
inline BoundCheck CheckBound(const KvFormat& format, const Profile& profile, const Tensor& x) {
  const TensorMap encoded = EncodeRows(format, profile, x);
  const EncodedRows stored = CodecRows(format, encoded);
  const size_t dim = static_cast<size_t>(x.shape.RowLength());
  const std::vector<double> values = ValuesOf(x);
  BoundCheck check;
  for (int64_t row = 0; row < x.shape.RowCount(); ++row) {
    const DecodedRows decoded = DecodeRows(format, profile, stored, row, 1);
    const size_t at = static_cast<size_t>(row) * dim;
    const std::vector<double> x_row(values.begin() + static_cast<std::ptrdiff_t>(at),
                                    values.begin() + static_cast<std::ptrdiff_t>(at + dim));
    const RowBound bound = RoundTripBound(format, profile, profile.decode, x.dtype, x_row);
    for (size_t i = 0; i < dim; ++i) {
      if (bound.overflows[i]) {
        ++check.without_bound;
        continue;
      }
      double y = decoded.hi[i];
      if (IsPlain(format)) y = RoundTo(x.dtype, y);
      const double lo = decoded.lo.empty() ? 0 : decoded.lo[i];
      check.Add(std::fabs((x_row[i] - y) - lo), bound.total[i]);
    }
  }
  return check;
}

// Rows of every regime, read exactly and rounded once. Expects no violation, and a bound that is
// reached. formats: of one family, each with a group_size.
template <typename Format>
void ExpectBoundInEveryRegime(const std::vector<Format>& formats) {
  BoundCheck all;
  for (const Format& format : formats) {
    for (const std::string_view regime : RowRegimes()) {
      for (const DecodeRounding decode : {DecodeRounding::kExact, DecodeRounding::kOneRounding}) {
        Profile profile;
        profile.decode = decode;
        const BoundCheck check = CheckBound(
            format, profile, GenerateRows(regime, 9, DType::kFloat32, 3, 2 * format.group_size));
        EXPECT_EQ(check.violations, 0) << format.Text() << " " << regime;
        all.Add(check);
      }
    }
  }
  EXPECT_GT(all.judged, 20'000);
  EXPECT_GT(all.largest_ratio, 0.99);
}

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_FORMATS_BOUND_CHECK_H_
