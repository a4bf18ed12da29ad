// How far an output is from the expected one, in every unit a reader may ask for. Nothing here
// decides anything: the verdict is the bound's, and these numbers describe it. Accumulated per tile
// and merged in the order of tiles, so the result does not depend on threads.

#ifndef REFERENCE_JUDGE_METRICS_H_
#define REFERENCE_JUDGE_METRICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "reference/judge/log_sketch.h"
#include "reference/judge/scaled_sum.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {

// Cells of the ULP histogram: 0, 1, 2, 3-4, 5-8, ..., 2^61+1 - 2^62, and more or not finite. An
// error of x spacings counts as ceil(x - 1/2): cell 0 holds the values nearest to the expected one.
inline constexpr int kUlpCells = 65;
// "0", "1", "2", "3-4", ..., "inf".
std::string UlpCellName(int cell);

struct Quantiles {
  double q50 = 0;
  double q90 = 0;
  double q99 = 0;
  double q100 = 0;  // exact; the others within one part in 32
  bool operator==(const Quantiles&) const = default;
};

struct Metrics {
  int64_t finite = 0;      // pairs in the averages: judged, both finite, not an alternative
  int64_t not_finite = 0;  // failing pairs with NaN, an infinity or no code
  double max_abs = 0;
  double mean_abs = 0;
  double rms_abs = 0;
  double max_rel = 0;   // |error| / |expected|; infinite for an error where 0 is expected
  double mean_rel = 0;  // mean and RMS run over the pairs with a nonzero expected value
  double rms_rel = 0;
  double max_ulp = 0;  // in spacings of the output type at the expected value
  std::array<int64_t, kUlpCells> ulp_histogram{};
  std::optional<double> nmse;     // sum of squared errors / sum of squared expected; absent: 0 / 0
  std::optional<double> cosine;   // absent when either side is all zero
  std::optional<double> snr_db;   // -10 log10(nmse); infinite without errors
  Quantiles bound_ratio;          // |error| / bound
  double median_bound_share = 0;  // of bound / mass: how loose the comparison is
  double expected_rms = 0;
  double got_rms = 0;
  // The smallest tolerance under which everything judged would pass, one unit at a time; infinite
  // when a pair that is not finite fails.
  double passing_ulp = 0;
  double passing_abs = 0;
  double passing_rel = 0;
  double passing_factor = 0;  // times the bound
  bool operator==(const Metrics&) const = default;
};

// Pairs of a run (below) at most.
inline constexpr size_t kRun = 256;

// Contiguous judged pairs, all finite: the arguments of MetricsAccumulator::Add.
struct PairRun {
  const double* got;
  const double* expected;
  const double* error;
  const double* ratio;  // null: not known
  size_t size;
};

class MetricsAccumulator {
 public:
  // A judged pair, both finite. error: got - expected; spacing: of the output type at expected;
  // ratio: |error| over the tolerance, 0 for no error; negative: not known.
  void Add(double got, double expected, double error, double spacing, double ratio);
  // Add for every pair in turn, with the same result to the last bit, at a fraction of the time.
  // spacing: of the output type; nullptr: 1 everywhere.
  void AddRun(const PairRun& run, const TypeSpacing* spacing);
  // A failing pair that is not finite.
  void AddNotFinite();
  // bound / mass of a judged element.
  void AddBoundShare(double share) { bound_shares_.Add(share); }
  void AddBoundShares(std::span<const double> shares) { bound_shares_.AddAll(shares); }
  void Merge(const MetricsAccumulator& other);
  Metrics Finish() const;

 private:
  void AddModerate(const PairRun& run, const TypeSpacing* spacing);

  int64_t finite_ = 0;
  int64_t not_finite_ = 0;
  int64_t relative_count_ = 0;
  double max_abs_ = 0;
  double max_rel_ = 0;
  double max_ulp_ = 0;
  std::array<int64_t, kUlpCells> ulps_{};
  ScaledSum abs_;
  ScaledSum rel_;
  ScaledSum error_squared_;
  ScaledSum rel_squared_;
  ScaledSum expected_squared_;
  ScaledSum got_squared_;
  ScaledSum product_;
  LogSketch ratios_;
  LogSketch bound_shares_;
};

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_METRICS_H_
