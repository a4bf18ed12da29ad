// The state of one pass over one span: the plan, the summary so far, and the limits that follow
// from its records. Shared by the kernels of all instruction sets, and free of vectors itself.

#ifndef OPTIMIZED_COMPARE_SCAN_H_
#define OPTIMIZED_COMPARE_SCAN_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "optimized/compare/byte_pairs.h"
#include "optimized/compare/first_pass.h"
#include "optimized/compare/pass_plan.h"

namespace kvcheck {

// Squares are summed as if by 16 lanes: element i of a block in lane i % 16, in order, then the
// lanes by halves. So the sum of a block is the same for every width of vector.
inline constexpr size_t kSumLanes = 16;
using SumLanes = std::array<double, kSumLanes>;

class Scan {
 public:
  Scan(DType dtype, const PassRule& rule);

  const PassPlan& plan() const { return plan_; }
  const LaneLimits& limits() const { return limits_; }
  PassSummary& summary() { return summary_; }
  size_t bytes() const { return static_cast<size_t>(plan_.type.bytes); }

  // A pair that a lane could not certify, or that may set a record; its square is in the lanes
  // where AddPair leaves it to them.
  void Doubt(const std::byte* want, const std::byte* got);
  // Elements [first, last) of a block in which some differ, one by one, squares included.
  void AddSingly(const std::byte* want, const std::byte* got, size_t first, size_t last,
                 SumLanes* squares);
  // The whole block, of a one-byte type.
  void AddBytePairs(const std::byte* want, const std::byte* got, size_t count);
  void AddBlockSquares(SumLanes squares);

  PassSummary Finish();

 private:
  PassPlan plan_;
  PassSummary summary_;
  LaneLimits limits_;
  BytePairs byte_pairs_;
};

}  // namespace kvcheck

#endif  // OPTIMIZED_COMPARE_SCAN_H_
