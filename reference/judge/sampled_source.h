// A sample of the rows of an ExpectedSource, for outputs too large to judge whole.
//
// Which of n rows:
//   first and last row of each head                               an eighth of the sample at most
//   rows beside multiples of kEdge, where kernels cut queries     an eighth
//   UnusualRows of the source (fully masked queries, ...)         a quarter
//   the rest: all n rows are cut into r intervals of n / r rows, rounded down or up, and of each
//   interval one row is drawn, all alike
// Where a group has more rows than its share, evenly spaced ones are taken.
//
// Chance to miss a fault: let k of the n rows be faulty, k_i in interval i of s_i <= s =
// ceil(n / r) rows. That none is drawn has probability prod (1 - k_i / s_i) <= prod (1 - k_i / s),
// which by the inequality of the means is at most (1 - k / (r s))^r, wherever the k rows are. The
// other groups only lower it.

#ifndef REFERENCE_JUDGE_SAMPLED_SOURCE_H_
#define REFERENCE_JUDGE_SAMPLED_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/verdict.h"
#include "reference/spec/row_sample.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// Query tiles of known kernels are multiples of it.
inline constexpr int64_t kEdge = 64;

struct ChosenRows {
  std::vector<int64_t> rows;  // ascending
  SampleReport report;
};

// info: whose rows; most: how many of them, from 1. unusual: ascending. missed: of
// SampleReport::found_rows.
ChosenRows ChooseRows(const OutputInfo& info, int64_t most, uint64_t seed,
                      const std::vector<int64_t>& unusual, double missed);

// The chance that none of `faulty` rows is among the judged ones, at most.
double ChanceToMiss(const SampleReport& sample, int64_t faulty);

class SampledSource : public ExpectedSource {
 public:
  // source must outlive it. Outputs of no more than `rows` rows are judged whole. Outputs with as
  // many rows share their sample.
  SampledSource(const ExpectedSource& source, int64_t rows, uint64_t seed, double missed);
  const std::vector<OutputInfo>& Outputs() const override { return source_.Outputs(); }
  int64_t TileCount() const override { return source_.TileCount(); }
  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override;
  Precision FinestPrecision() const override { return source_.FinestPrecision(); }
  std::vector<OtherReading> OtherReadings(int output) const override {
    return source_.OtherReadings(output);
  }
  std::shared_ptr<const SeenKeys> Seen(int output, const RowsToExplain& rows) const override {
    return source_.Seen(output, rows);
  }
  std::vector<OtherReading> Completions(int output, int64_t row,
                                        std::span<const double> got) const override {
    return source_.Completions(output, row, got);
  }
  std::vector<std::string> Assumptions() const override { return source_.Assumptions(); }
  // Per output; nullopt: all of its rows are judged.
  const std::vector<std::optional<SampleReport>>& reports() const { return reports_; }

 private:
  struct Parts {
    std::vector<std::vector<int64_t>> rows;
    std::vector<std::optional<SampleReport>> reports;
  };
  SampledSource(const ExpectedSource& source, Parts parts);
  static Parts Choose(const ExpectedSource& source, int64_t rows, uint64_t seed, double missed);

  const ExpectedSource& source_;
  std::vector<std::optional<SampleReport>> reports_;
  RowSample sample_;
};

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_SAMPLED_SOURCE_H_
