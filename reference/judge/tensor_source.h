// Stored tensors as an ExpectedSource, under a rule that the user gives: exact, ulp:N, abs:X,rel:Y.
// Both sides are read tile by tile, so that a pair of any size costs the memory of a few tiles.
// Bits are compared as bits: an int64 never passes through a double.
//
//   exact         codes equal. Zeros of different sign differ.
//   ulp:N         |got - want| <= N spacings of the type at want (the larger spacing at a power of
//                 two); integers have spacing 1
//   abs:X,rel:Y   |got - want| <= X + Y |want|, in exact arithmetic
// An infinity equals itself alone. Two NaN follow JudgeOptions::special, which holds for one call
// of Judge: kTensorPolicy (NaN fails, but under exact equals its own bits), or PolicyOf what is
// asked.

#ifndef REFERENCE_JUDGE_TENSOR_SOURCE_H_
#define REFERENCE_JUDGE_TENSOR_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "reference/spec/tensor.h"
#include "reference/spec/tiles.h"
#include "reference/spec/tolerance.h"

namespace kvcheck {

// A rule for one tensor, which is named alike on both sides.
struct NamedRule {
  std::string name;
  ToleranceRule rule;
};

struct RuledTensor {
  Tensor tensor;
  ToleranceRule rule;
};

// What the rules say about NaN when nothing else is asked.
inline constexpr SpecialPolicy kTensorPolicy = {NanPolicy::kFail, NanPolicy::kEqualBits};
// The same policy for every rule.
constexpr SpecialPolicy PolicyOf(NanPolicy nan) { return {nan, nan}; }

// What a rule allows about each expected value of a type; 0 about one that is not finite, which is
// decided before its bound matters. Precondition: ulp or abs and rel.
std::vector<double> RuleBounds(const ToleranceRule& rule, DType dtype,
                               const std::vector<double>& wants);

class RuledTensorSource : public ExpectedSource {
 public:
  // expected holds the tensors and must outlive the source; nothing is read yet.
  // Errors: kMissingData when a name is absent; kUnsupported for the rules codec and derived, which
  // need more than two tensors.
  RuledTensorSource(const ObservedSource& expected, const std::vector<NamedRule>& rules);
  // The same over tensors in memory, which the source keeps.
  explicit RuledTensorSource(std::map<std::string, RuledTensor> tensors);

  const std::vector<OutputInfo>& Outputs() const override { return outputs_; }
  int64_t TileCount() const override { return static_cast<int64_t>(tiles_.size()); }
  // Errors: kIllegalCase, with its coordinates, for a byte of an expected e2m1fn or bool tensor
  // that is no code; what expected.Read throws.
  std::vector<ExpectedTile> Tiles(int64_t index, const TileRequest& request) const override;
  Precision FinestPrecision() const override { return Precision::kDouble; }

 private:
  struct TileRange {
    int output;
    int64_t first_row;
    int64_t row_count;
  };
  void Add(const NamedRule& named);

  std::unique_ptr<const ObservedSource> owned_;
  const ObservedSource& expected_;
  std::vector<ToleranceRule> rules_;  // beside outputs_
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
