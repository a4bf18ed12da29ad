#include "reference/judge/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "reference/judge/run_checks.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int UlpCellOf(double ulps) {
  const double steps = ulps - 0.5;  // of which the ceiling counts
  if (!(steps > 0)) return 0;
  if (!(steps <= 0x1p62)) return kUlpCells - 1;
  const int64_t whole = static_cast<int64_t>(steps);
  const int64_t ceiling = whole + (static_cast<double>(whole) < steps ? 1 : 0);
  return 1 + static_cast<int>(std::bit_width(static_cast<uint64_t>(ceiling - 1)));
}

// sqrt(total / count).
double RootMean(const ScaledSum& squares, int64_t count) {
  if (count == 0) return 0;
  Scaled mean = Normalised(squares.Total());
  mean.mantissa /= static_cast<double>(count);
  return Root(mean).ToDouble();
}

double Mean(const ScaledSum& sum, int64_t count) {
  if (count == 0) return 0;
  Scaled mean = Normalised(sum.Total());
  mean.mantissa /= static_cast<double>(count);
  return mean.ToDouble();
}

}  // namespace

std::string UlpCellName(int cell) {
  if (cell >= kUlpCells - 1) return "inf";
  if (cell <= 2) return fmt::format("{}", cell);
  const int64_t high = int64_t{1} << (cell - 1);
  return fmt::format("{}-{}", high / 2 + 1, high);
}

void MetricsAccumulator::Add(double got, double expected, double error, double spacing,
                             double ratio) {
  ++finite_;
  const double size = std::fabs(error);
  const double ulps = size == 0 ? 0 : size / spacing;
  max_abs_ = std::max(max_abs_, size);
  max_ulp_ = std::max(max_ulp_, ulps);
  ++ulps_[static_cast<size_t>(UlpCellOf(ulps))];
  // Of two opposite extremes the difference itself is beyond double: it is counted at the largest.
  const double summed = std::min(size, std::numeric_limits<double>::max());
  abs_.AddProduct(summed, 1);
  error_squared_.AddProduct(summed, summed);
  expected_squared_.AddProduct(expected, expected);
  got_squared_.AddProduct(got, got);
  product_.AddProduct(got, expected);
  if (expected != 0) {
    const double relative = size / std::fabs(expected);
    max_rel_ = std::max(max_rel_, relative);
    const double finite = std::min(relative, std::numeric_limits<double>::max());
    rel_.AddProduct(finite, 1);
    rel_squared_.AddProduct(finite, finite);
    ++relative_count_;
  } else if (size != 0) {
    max_rel_ = kInfinity;
  }
  if (ratio >= 0 || std::isnan(ratio)) ratios_.Add(ratio);
}

void MetricsAccumulator::AddRun(const PairRun& run, const TypeSpacing* spacing) {
  uint64_t extreme = 0;
  for (size_t i = 0; i < run.size; ++i) {
    extreme |= NotModerateBits(run.got[i]) | NotModerateBits(run.expected[i]) |
               NotModerateBits(run.error[i]);
  }
  if (extreme == 0 && run.size <= kRun) return AddModerate(run, spacing);
  for (size_t i = 0; i < run.size; ++i) {
    const bool wants_spacing = run.error[i] != 0 && spacing != nullptr;
    Add(run.got[i], run.expected[i], run.error[i], wants_spacing ? spacing->At(run.expected[i]) : 1,
        run.ratio == nullptr ? -1 : run.ratio[i]);
  }
}

// Every sum takes its terms in the order of Add; a term of 0 changes nothing.
void MetricsAccumulator::AddModerate(const PairRun& run, const TypeSpacing* spacing) {
  std::array<double, kRun> relative;
  std::array<double, kRun> ulps;
  int64_t without_relative = 0;
  int64_t off_zero = 0;  // an error where 0 is expected
  for (size_t i = 0; i < run.size; ++i) {
    const double size = std::fabs(run.error[i]);
    const double expected = std::fabs(run.expected[i]);
    const double divisor = expected == 0 ? kInfinity : expected;
    relative[i] = size / divisor;
    without_relative += expected == 0 ? 1 : 0;
    off_zero |= expected == 0 && size != 0 ? 1 : 0;
  }
  if (spacing == nullptr) {
    for (size_t i = 0; i < run.size; ++i) ulps[i] = std::fabs(run.error[i]);
  } else {
    const TypeSpacing type = *spacing;
    for (size_t i = 0; i < run.size; ++i) {
      ulps[i] = std::fabs(run.error[i]) / type.AtFinite(std::fabs(run.expected[i]));
    }
  }
  max_abs_ = LargestOf(max_abs_, run.size, [&](size_t i) { return std::fabs(run.error[i]); });
  max_rel_ = LargestOf(max_rel_, run.size, [&](size_t i) { return relative[i]; });
  max_ulp_ = LargestOf(max_ulp_, run.size, [&](size_t i) { return ulps[i]; });
  for (size_t i = 0; i < run.size; ++i) {
    const double got = run.got[i];
    const double expected = run.expected[i];
    const double size = std::fabs(run.error[i]);
    abs_.AddModerate(size, 1);
    error_squared_.AddModerate(size, size);
    rel_.AddModerate(relative[i], 1);
    rel_squared_.AddModerate(relative[i], relative[i]);
    expected_squared_.AddModerate(expected, expected);
    got_squared_.AddModerate(got, got);
    product_.AddModerate(got, expected);
  }
  for (size_t i = 0; i < run.size; ++i) ++ulps_[static_cast<size_t>(UlpCellOf(ulps[i]))];
  if (run.ratio != nullptr) ratios_.AddAll({run.ratio, run.size});
  finite_ += static_cast<int64_t>(run.size);
  relative_count_ += static_cast<int64_t>(run.size) - without_relative;
  if (off_zero != 0) max_rel_ = kInfinity;
}

void MetricsAccumulator::AddNotFinite() {
  ++not_finite_;
  ++ulps_[kUlpCells - 1];
  ratios_.Add(kInfinity);
}

void MetricsAccumulator::Merge(const MetricsAccumulator& other) {
  finite_ += other.finite_;
  not_finite_ += other.not_finite_;
  relative_count_ += other.relative_count_;
  max_abs_ = std::max(max_abs_, other.max_abs_);
  max_rel_ = std::max(max_rel_, other.max_rel_);
  max_ulp_ = std::max(max_ulp_, other.max_ulp_);
  for (size_t i = 0; i < ulps_.size(); ++i) ulps_[i] += other.ulps_[i];
  abs_.Merge(other.abs_);
  rel_.Merge(other.rel_);
  error_squared_.Merge(other.error_squared_);
  rel_squared_.Merge(other.rel_squared_);
  expected_squared_.Merge(other.expected_squared_);
  got_squared_.Merge(other.got_squared_);
  product_.Merge(other.product_);
  ratios_.Merge(other.ratios_);
  bound_shares_.Merge(other.bound_shares_);
}

Metrics MetricsAccumulator::Finish() const {
  Metrics m;
  m.finite = finite_;
  m.not_finite = not_finite_;
  m.max_abs = max_abs_;
  m.mean_abs = Mean(abs_, finite_);
  m.rms_abs = RootMean(error_squared_, finite_);
  m.max_rel = max_rel_;
  m.mean_rel = Mean(rel_, relative_count_);
  m.rms_rel = RootMean(rel_squared_, relative_count_);
  m.max_ulp = max_ulp_;
  m.ulp_histogram = ulps_;
  m.expected_rms = RootMean(expected_squared_, finite_);
  m.got_rms = RootMean(got_squared_, finite_);
  const Scaled expected = expected_squared_.Total();
  const Scaled got = got_squared_.Total();
  const Scaled error = error_squared_.Total();
  if (expected.mantissa != 0) {
    m.nmse = Ratio(error, expected);
    // log10 of mantissa and exponent apart: the ratio may be beyond double.
    const Scaled e = Normalised(error);
    const Scaled x = Normalised(expected);
    m.snr_db = e.mantissa == 0 ? kInfinity
                               : -10 * (std::log10(e.mantissa / x.mantissa) +
                                        (e.exponent - x.exponent) * std::log10(2.0));
  } else if (error.mantissa != 0) {
    m.nmse = kInfinity;
    m.snr_db = -kInfinity;
  }
  if (expected.mantissa != 0 && got.mantissa != 0) {
    const Scaled x = Root(expected);
    const Scaled g = Root(got);
    const Scaled sizes = {x.mantissa * g.mantissa, x.exponent + g.exponent};
    m.cosine = std::clamp(Ratio(product_.Total(), sizes), -1.0, 1.0);
  }
  m.bound_ratio = {ratios_.Quantile(0.5), ratios_.Quantile(0.9), ratios_.Quantile(0.99),
                   ratios_.Quantile(1.0)};
  m.median_bound_share = bound_shares_.Quantile(0.5);
  const bool hopeless = not_finite_ > 0;
  m.passing_ulp = hopeless ? kInfinity : max_ulp_;
  m.passing_abs = hopeless ? kInfinity : max_abs_;
  m.passing_rel = hopeless ? kInfinity : max_rel_;
  m.passing_factor = hopeless ? kInfinity : m.bound_ratio.q100;
  return m;
}

}  // namespace kvcheck
