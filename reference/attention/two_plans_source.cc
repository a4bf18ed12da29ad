#include "reference/attention/two_plans_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {

TwoPlansSource::TwoPlansSource(const AttentionCase& c, const Profile& profile,
                               const Plan& gold_plan, const Plan& plan, const TensorMap& inputs,
                               const TensorMap& gold)
    : first_(c, profile, gold_plan, inputs),
      second_(c, profile, plan, inputs),
      gold_(gold),
      outputs_(second_.Outputs()) {
  for (OutputInfo& info : outputs_) {
    info.rule = "sum of the derived bounds of both plans";
    // The statistics suppose the roundings of one kernel around the exact value.
    info.groups.clear();
    info.directions.clear();
    info.per_unit_direction = info.varying_direction = -1;
    info.hints.clear();
    const Tensor& tensor = Get(gold, info.name);
    if (tensor.dtype == info.dtype && tensor.shape.SameExtents(info.shape)) continue;
    throw Error(ErrorCode::kMissingData,
                fmt::format("the stored '{}' is {} {}, the case asks for {} {}", info.name,
                            ShortName(tensor.dtype), ToString(tensor.shape), ShortName(info.dtype),
                            ToString(info.shape)));
  }
}

std::vector<ExpectedTile> TwoPlansSource::Tiles(int64_t index, const TileRequest& request) const {
  TileRequest plain = request;
  plain.statistics = false;
  plain.accepts = {};  // neither plan's bound is that of both
  const std::vector<ExpectedTile> first = first_.Tiles(index, plain);
  std::vector<ExpectedTile> tiles = second_.Tiles(index, plain);
  for (size_t i = 0; i < tiles.size(); ++i) Join(first[i], &tiles[i]);
  return tiles;
}

void TwoPlansSource::Join(const ExpectedTile& first, ExpectedTile* tile) const {
  const OutputInfo& info = outputs_[static_cast<size_t>(tile->output)];
  std::vector<double> gold(tile->value.size());
  DecodeTo(gold_.at(info.name), tile->first_row * info.row_length, gold);
  tile->group.clear();
  tile->detectable_share.clear();
  // Both plans prove something, or nothing is proved.
  for (size_t row = 0; row < tile->standing.size(); ++row) {
    if (tile->standing[row] != Standing::kJudged) continue;
    tile->standing[row] = first.standing[row];
    tile->standing_reason[row] = first.standing_reason[row];
  }
  // What one bound hides, the sum of both hides too.
  for (size_t row = 0; row < tile->sensitivity.size(); ++row) {
    tile->sensitivity[row] = std::max(tile->sensitivity[row], first.sensitivity[row]);
  }
  if (!first.undefined.empty()) {
    tile->undefined.resize(tile->value.size());
    tile->undefined_reason = first.undefined_reason;
    for (size_t i = 0; i < gold.size(); ++i) tile->undefined[i] |= first.undefined[i];
  }
  if (!first.may_overflow.empty()) {
    tile->may_overflow.resize(tile->standing.size());
    for (size_t row = 0; row < tile->may_overflow.size(); ++row) {
      tile->may_overflow[row] |= first.may_overflow[row];
    }
  }
  for (size_t i = 0; i < gold.size(); ++i) {
    // An infinite answer where a finite one is exact is the first plan's own overflow, and where
    // one plan clamps they are close to different values: that says nothing of the second, which is
    // then held against its own value alone.
    if (std::isinf(gold[i]) && std::isfinite(tile->value[i])) continue;
    if (first.value[i] != tile->value[i]) continue;
    tile->value[i] = gold[i];
    tile->value_lo[i] = 0;
    tile->bound[i] += first.bound[i];
    tile->reference_bound[i] += first.reference_bound[i];
    for (size_t term = 0; term < tile->terms.size(); ++term) {
      tile->terms[term][i] += first.terms[term][i];
    }
  }
}

std::vector<OtherReading> TwoPlansSource::OtherReadings(int output) const {
  // Mistakes alone: which of the two declarations would have to change cannot be told.
  std::vector<OtherReading> readings = second_.OtherReadings(output);
  std::erase_if(readings, [](const OtherReading& reading) { return reading.declared.has_value(); });
  return readings;
}

std::vector<std::string> TwoPlansSource::Assumptions() const {
  std::vector<std::string> all = second_.Assumptions();
  for (const std::string& assumed : first_.Assumptions()) all.push_back("gold: " + assumed);
  return all;
}

}  // namespace kvcheck
