// Two implementations of one attention case held against each other: the expected values are what
// the first one answered, and the bound is B(first plan) + B(second plan), for each lies within its
// own bound of the exact value (bound.md, section 2, "Both sides inexact"). A first answer outside
// its own bound proves nothing about the second: judge it on its own first.

#ifndef REFERENCE_ATTENTION_TWO_PLANS_SOURCE_H_
#define REFERENCE_ATTENTION_TWO_PLANS_SOURCE_H_

#include <string>
#include <vector>

#include "reference/attention/attention_source.h"

namespace kvcheck {

class TwoPlansSource : public ExpectedSource {
 public:
  // gold: the first implementation's outputs, of the types and shapes of OutputSpecs(c). profile:
  // of both. inputs and gold must outlive the source. Errors: kMissingData, also for an output that
  // gold lacks; kIllegalCase.
  TwoPlansSource(const AttentionCase& c, const Profile& profile, const Plan& gold_plan,
                 const Plan& plan, const TensorMap& inputs, const TensorMap& gold);

  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override { return second_.TileCount(); }
  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override;
  // Of the second plan: whoever exceeds both bounds while gold keeps its own has left the second's.
  std::vector<OtherReading> OtherReadings(int output) const override;
  std::shared_ptr<const SeenKeys> Seen(int output, const RowsToExplain& rows) const override {
    return second_.Seen(output, rows);
  }
  std::vector<std::string> Assumptions() const override;

 private:
  void Join(const ExpectedTile& first, ExpectedTile* tile) const;

  AttentionSource first_;
  AttentionSource second_;
  const TensorMap& gold_;
  std::vector<OutputInfo> outputs_;
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_TWO_PLANS_SOURCE_H_
