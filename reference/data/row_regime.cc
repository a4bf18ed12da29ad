#include "reference/data/row_regime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "reference/data/generator.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/rounding.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, 14> kRegimes = {
    "gauss", "cauchy", "group_scales", "constant", "offset",    "all_positive", "all_negative",
    "tiny",  "huge",   "ties",         "sparse",   "subnormal", "log_uniform",  "mixed"};
constexpr size_t kPlainRegimes = kRegimes.size() - 1;  // all but mixed

constexpr size_t kUnit = 32;

// The exponents of the type that f64 rows share with f32: an affine codec computes in f32.
struct Range {
  int lowest_exponent;   // of a normal number
  int highest_exponent;  // of the largest finite one
  double smallest_subnormal;
  int64_t subnormal_count;
};

Range RangeOf(DType dtype) {
  const FloatType& type = FloatTypeOf(dtype == DType::kFloat64 ? DType::kFloat32 : dtype);
  return {std::ilogb(type.smallest_normal), std::ilogb(type.largest_finite),
          type.smallest_subnormal, (int64_t{1} << type.mantissa_bits) - 1};
}

double Cauchy(Generator* random) {
  const double numerator = random->Gauss();
  double denominator = random->Gauss();
  while (denominator == 0) denominator = random->Gauss();
  return numerator / denominator;
}

// Every draw is a statement of its own: the order of evaluation within an expression is not the
// same for all compilers.
void FillUnit(std::string_view regime, const Range& range, double offset, Generator* random,
              std::span<double> unit) {
  const auto fill = [&](auto&& value) {
    for (double& x : unit) x = value();
  };
  const auto scaled_gauss = [&](int64_t low, int64_t high) {
    const double scale = std::ldexp(1.0, static_cast<int>(random->Between(low, high)));
    fill([&] { return random->Gauss() * scale; });
  };
  if (regime == "gauss") return fill([&] { return random->Gauss(); });
  if (regime == "offset") return fill([&] { return random->Gauss() + offset; });
  if (regime == "cauchy") return fill([&] { return Cauchy(random); });
  if (regime == "group_scales") return scaled_gauss(-14, 10);
  if (regime == "constant") {
    const double value = random->Gauss();
    return fill([&] { return value; });
  }
  if (regime == "all_positive") return fill([&] { return std::fabs(random->Gauss()); });
  if (regime == "all_negative") return fill([&] { return -std::fabs(random->Gauss()); });
  if (regime == "tiny") return scaled_gauss(-30, -16);
  if (regime == "huge") {
    return scaled_gauss(range.highest_exponent - 8, range.highest_exponent - 3);
  }
  if (regime == "ties") {
    const double grid = random->Below(2) == 0 ? 1.0 : 0x1p-6;
    return fill([&] { return static_cast<double>(random->Between(-256, 256)) * grid; });
  }
  if (regime == "sparse") {
    return fill([&] {
      const double value = random->Gauss();
      return random->Below(20) == 0 ? value : std::copysign(0.0, value);
    });
  }
  if (regime == "subnormal") {
    return fill([&] {
      const int64_t count = random->Between(-range.subnormal_count, range.subnormal_count);
      return static_cast<double>(count) * range.smallest_subnormal;
    });
  }
  KVCHECK_CHECK(regime == "log_uniform", "a regime without a generator");
  fill([&] {
    const int64_t exponent = random->Between(range.lowest_exponent / 2, range.highest_exponent / 2);
    const double magnitude = std::ldexp(1.0 + random->Uniform(), static_cast<int>(exponent));
    return random->Sign() * magnitude;
  });
}

void FillRow(std::string_view regime, const Range& range, Generator* random,
             std::span<double> row) {
  const double offset = 50.0 * (2.0 * random->Uniform() - 1.0);
  for (size_t first = 0; first < row.size(); first += kUnit) {
    const std::span<double> unit = row.subspan(first, std::min(kUnit, row.size() - first));
    const std::string_view here =
        regime == "mixed" ? kRegimes[random->Below(kPlainRegimes)] : regime;
    FillUnit(here, range, offset, random, unit);
  }
}

}  // namespace

std::span<const std::string_view> RowRegimes() { return kRegimes; }

void ThrowUnknownRegime(std::string_view regime, std::string_view kind,
                        std::span<const std::string_view> known) {
  const std::string names = fmt::format("{}", fmt::join(known, ", "));
  throw Error(ErrorCode::kIllegalCase,
              fmt::format("'{}' is not a regime of {}{}; regimes: {}", Shortened(regime, 80), kind,
                          DidYouMean(regime, names), names));
}

Tensor GenerateRows(std::string_view regime, uint64_t seed, DType dtype, int64_t rows,
                    int64_t dim) {
  if (std::find(kRegimes.begin(), kRegimes.end(), regime) == kRegimes.end()) {
    ThrowUnknownRegime(regime, "rows", kRegimes);
  }
  if (!IsFloat(dtype) || !FloatTypeOf(dtype).is_signed) {
    throw Error(
        ErrorCode::kIllegalCase,
        fmt::format("rows of {} cannot be generated; use a signed float type", Name(dtype)));
  }
  Tensor tensor(dtype, {{"", rows}, {"", dim}});
  const Range range = RangeOf(dtype);
  const size_t row_bytes = static_cast<size_t>(dim) * SizeInBytes(dtype);
  std::vector<double> row(static_cast<size_t>(dim));
  for (int64_t r = 0; r < rows; ++r) {
    Generator random(seed, regime, static_cast<uint64_t>(r));
    FillRow(regime, range, &random, row);
    EncodeFrom(row, dtype, tensor.bytes.data() + static_cast<size_t>(r) * row_bytes,
               {.overflow = Overflow::kSaturate});
  }
  return tensor;
}

}  // namespace kvcheck
