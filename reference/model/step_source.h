// Steps of a decoder as Expected tiles for the judge: one output per step, named as it is reported.

#ifndef REFERENCE_MODEL_STEP_SOURCE_H_
#define REFERENCE_MODEL_STEP_SOURCE_H_

#include <string>
#include <vector>

#include "reference/model/steps.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

struct NamedStep {
  std::string name;
  StepValues values;
};

// Outputs are f32, (tokens, width), a tile each.
class StepSource : public ExpectedSource {
 public:
  explicit StepSource(std::vector<NamedStep> steps);
  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override { return static_cast<int64_t>(steps_.size()); }
  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override;
  // Beyond double nothing is known: a step's own error is carried as its reference bound.
  Precision FinestPrecision() const override { return Precision::kDouble; }

 private:
  std::vector<NamedStep> steps_;
  std::vector<OutputInfo> outputs_;
};

}  // namespace kvcheck

#endif  // REFERENCE_MODEL_STEP_SOURCE_H_
