// Stored tensors as an ExpectedSource, under a rule that the user gives: exact, ulp:N, abs:X,rel:Y.
// Bits are compared as bits: an int64 never passes through a double.
//
//   exact         codes equal. A NaN equals the same NaN bits, zeros of different sign differ.
//   ulp:N         |got - want| <= N spacings of the type at want (the larger spacing at a power of
//                 two); integers have spacing 1
//   abs:X,rel:Y   |got - want| <= X + Y |want|, the right side to the nearest double
// Under the last two rules NaN fails, and an infinity equals itself alone.

#ifndef REFERENCE_JUDGE_TENSOR_SOURCE_H_
#define REFERENCE_JUDGE_TENSOR_SOURCE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"
#include "reference/spec/tolerance.h"

namespace kvcheck {

struct RuledTensor {
  Tensor tensor;
  ToleranceRule rule;
};

// The policy that the rules above state.
inline constexpr SpecialPolicy kTensorPolicy = {NanPolicy::kFail, NanPolicy::kEqualBits};

class RuledTensorSource : public ExpectedSource {
 public:
  // Errors: kIllegalCase when an e2m1fn or bool tensor holds bytes that are no codes; kUnsupported
  // for the rules codec and derived, which this source does not know.
  explicit RuledTensorSource(std::map<std::string, RuledTensor> tensors);
  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override { return static_cast<int64_t>(tiles_.size()); }
  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override;

 private:
  struct TileRange {
    int output;
    int64_t first_row;
    int64_t row_count;
  };
  std::vector<RuledTensor> tensors_;
  std::vector<OutputInfo> outputs_;
  std::vector<TileRange> tiles_;
};

// Compares stored tensors by name; options.special is taken as kTensorPolicy.
Verdict JudgeTensors(std::map<std::string, RuledTensor> expected, const TensorMap& observed,
                     JudgeOptions options = {});
// The same for one pair, under the name "tensor".
Verdict JudgeTensors(const Tensor& expected, const Tensor& observed, const ToleranceRule& rule,
                     JudgeOptions options = {});

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_TENSOR_SOURCE_H_
