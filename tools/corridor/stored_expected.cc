#include "tools/corridor/stored_expected.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "reference/judge/ordered_parallel.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr const char* kEverythingF64 =
    "qk=f64:pairwise pv=f64:pairwise l=f64:pairwise op=f64 scale_roundings=1 prescale=none "
    "scores=f64 bias_roundings=0 exp=exp block=all p=f64 merge=none splits=1 normalise=divide "
    "flush=no saturate=no dequantize=stored";

// Rows of a tile of attention at most (attention_source.h); a sample is counted in whole tiles.
int64_t TilesToSample(const ExpectedSource& source, int64_t sample_rows) {
  if (sample_rows <= 0) return 0;
  int64_t rows = 0;
  for (const OutputInfo& info : source.Outputs()) {
    if (info.row_length > 0) rows = std::max(rows, info.shape.ElementCount() / info.row_length);
  }
  const int64_t tiles = source.TileCount();
  if (tiles == 0) return 0;
  const int64_t rows_per_tile = std::max<int64_t>(1, rows / tiles);
  return std::min(tiles, (sample_rows + rows_per_tile - 1) / rows_per_tile);
}

// What remains of a - b when it is rounded to double (Knuth's two-sum).
double DifferenceError(double a, double b, double difference) {
  const double b_part = difference - a;
  return (a - (difference - b_part)) + (-b - b_part);
}

class StoredExpectedSource : public ExpectedSource {
 public:
  StoredExpectedSource(const ExpectedSource& source,
                       const std::map<std::string, ExpectedTensor>& stored, int64_t sample_rows)
      : source_(source), stored_(stored), outputs_(source.Outputs()) {
    for (OutputInfo& info : outputs_) {
      info.dtype = DType::kFloat64;
      info.rule =
          info.claim == Claim::kConformance ? "bytes equal" : "error bounds of both computations";
      info.terms.clear();
      info.groups.clear();
      info.directions.clear();
      info.hints.clear();
    }
    const int64_t samples = TilesToSample(source, sample_rows);
    for (int64_t i = 0; i < samples; ++i) {
      sampled_.insert((2 * i + 1) * source.TileCount() / (2 * samples));
    }
  }

  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override { return source_.TileCount(); }

  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest&) const override {
    TileRequest request;
    request.precision = Precision::kDoubleDouble;
    std::vector<ExpectedTile> tiles = source_.Tiles(index, request);
    std::vector<ExpectedTile> recomputed = tiles;
    if (sampled_.contains(index)) {
      request.precision = Precision::kOracle50;
      recomputed = source_.Tiles(index, request);
      KVCHECK_CHECK(recomputed.size() == tiles.size(), "another precision gave other tiles");
    }
    for (size_t t = 0; t < tiles.size(); ++t) Prepare(tiles[t], &recomputed[t]);
    return recomputed;
  }

 private:
  // coarse: at the precision of the stored values; tile: what they are held against.
  void Prepare(const ExpectedTile& coarse, ExpectedTile* tile) const {
    const OutputInfo& info = outputs_[static_cast<size_t>(tile->output)];
    const ExpectedTensor& stored = stored_.at(info.name);
    const double* low = stored.lo ? stored.lo->As<double>() : nullptr;
    const int64_t first = tile->first_row * info.row_length;
    const size_t count = tile->value.size();
    tile->codes.clear();
    tile->terms.clear();
    tile->statistics.reset();
    tile->group.clear();
    tile->detectable_share.clear();
    std::erase_if(tile->alternatives, [&](const Alternative& alternative) {
      return std::isinf(alternative.value) && !alternative.any;
    });
    if (info.claim == Claim::kConformance) return;
    std::vector<double> remainder(count, 0);
    std::vector<double> bound(count, 0);
    for (size_t i = 0; i < count; ++i) {
      const double value_lo = tile->value_lo.empty() ? 0 : tile->value_lo[i];
      const double stored_lo = low == nullptr ? 0 : low[first + static_cast<int64_t>(i)];
      const double own = coarse.reference_bound.empty() ? 0 : coarse.reference_bound[i];
      const double other = tile->reference_bound.empty() ? 0 : tile->reference_bound[i];
      double sum = own + other;
      if (low == nullptr && (value_lo != 0 || sum != 0)) sum += 0x1p-53 * std::fabs(tile->value[i]);
      if (std::isfinite(stored_lo)) {
        remainder[i] = value_lo - stored_lo;
        sum += std::fabs(DifferenceError(value_lo, stored_lo, remainder[i]));
      } else {
        // No finite value has such a low part: the element cannot pass.
        remainder[i] = 0;
        sum = -1;
      }
      // Three additions of nonnegative numbers may have lost 3 u of the sum.
      bound[i] = sum * (1 + 0x1p-50);
    }
    for (size_t i = 0; i < count; ++i) {
      if (bound[i] < 0) {
        bound[i] = 0;
        tile->value[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
    tile->value_lo = std::move(remainder);
    tile->bound = std::move(bound);
    tile->reference_bound.clear();
  }

  const ExpectedSource& source_;
  const std::map<std::string, ExpectedTensor>& stored_;
  std::vector<OutputInfo> outputs_;
  std::set<int64_t> sampled_;
};

void Store(const OutputInfo& info, const ExpectedTile& tile, ExpectedTensor* expected) {
  double* hi = expected->hi.As<double>() + tile.first_row * info.row_length;
  double* lo = expected->lo->As<double>() + tile.first_row * info.row_length;
  for (size_t i = 0; i < tile.value.size(); ++i) {
    const size_t row = i / static_cast<size_t>(info.row_length);
    const bool defined = tile.standing.empty() || tile.standing[row] == Standing::kJudged;
    hi[i] = defined ? tile.value[i] : std::numeric_limits<double>::quiet_NaN();
    lo[i] = defined && !tile.value_lo.empty() ? tile.value_lo[i] : 0;
  }
}

}  // namespace

Question ValueQuestion(Case c, TensorMap inputs, const Profile& profile) {
  return {std::move(c), std::move(inputs), ParsePlan(kEverythingF64), profile};
}

Profile ValueProfile(const GoldenCase& c) {
  // The profile of a recorded trace is that of a cache, and decides no values.
  if (c.case_text.starts_with("cache ")) return {};
  return ParseProfile(c.observed.empty() ? "" : c.observed.front().profile);
}

int64_t SampleRows(const Case& c, int64_t sample_rows) {
  return std::holds_alternative<AttentionCase>(c) ? sample_rows : 0;
}

std::map<std::string, ExpectedTensor> ComputeExpected(const ExpectedSource& source, int threads) {
  std::map<std::string, ExpectedTensor> expected;
  for (const OutputInfo& info : source.Outputs()) {
    ExpectedTensor& tensor = expected[info.name];
    tensor.hi = Tensor(DType::kFloat64, info.shape);
    tensor.lo = Tensor(DType::kFloat64, info.shape);
  }
  TileRequest request;
  request.precision = Precision::kDoubleDouble;
  OrderedParallelFor(
      source.TileCount(), threads, [&](int64_t index) { return source.Tiles(index, request); },
      [&](int64_t, const std::vector<ExpectedTile>& tiles) {
        for (const ExpectedTile& tile : tiles) {
          const OutputInfo& info = source.Outputs()[static_cast<size_t>(tile.output)];
          Store(info, tile, &expected.at(info.name));
        }
      });
  for (auto& [name, tensor] : expected) {
    const double* lo = tensor.lo->As<double>();
    if (std::all_of(lo, lo + tensor.lo->ElementCount(), [](double x) { return x == 0; })) {
      tensor.lo.reset();
    }
  }
  return expected;
}

Verdict VerifyExpected(const ExpectedSource& source,
                       const std::map<std::string, ExpectedTensor>& stored, int64_t sample_rows,
                       JudgeOptions options, const Cancel& cancel) {
  TensorMap high;
  std::map<std::string, ExpectedTensor> complete = stored;
  for (const OutputInfo& info : source.Outputs()) {
    const auto found = complete.find(info.name);
    // An absent output, or one of another shape, fails in the judge, which never asks its tiles.
    if (found == complete.end() || !found->second.hi.shape.SameExtents(info.shape)) {
      ExpectedTensor& zero = complete[info.name];
      zero.hi = Tensor(DType::kFloat64, info.shape);
      zero.lo.reset();
    }
  }
  for (const auto& [name, tensor] : stored) high[name] = tensor.hi;
  const StoredExpectedSource expected(source, complete, sample_rows);
  options.rule = Rule::kBound;
  options.first_precision = Precision::kDoubleDouble;
  options.highest_precision = Precision::kDoubleDouble;
  return Judge(CancellableSource(expected, cancel), MemorySink(std::move(high)), options);
}

}  // namespace kvcheck
