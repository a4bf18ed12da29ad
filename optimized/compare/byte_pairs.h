// One-byte types: how often each of the 2^16 pairs of codes occurs. Counting a pair costs one
// increment, whatever is measured of it, and each pair that occurs is then decided exactly, once.

#ifndef OPTIMIZED_COMPARE_BYTE_PAIRS_H_
#define OPTIMIZED_COMPARE_BYTE_PAIRS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimized/compare/first_pass.h"
#include "optimized/compare/pass_plan.h"

namespace kvcheck {

class BytePairs {
 public:
  void Count(const PassPlan& plan, const std::byte* want, const std::byte* got, int64_t count,
             PassSummary* to);
  // Moves what was counted into the summary.
  void Flush(const PassPlan& plan, PassSummary* to);

 private:
  static constexpr size_t kPairs = size_t{1} << 16;
  // Neighbouring elements, which are often the same pair, count in different tables: an increment
  // of the word that was just written waits for the store.
  static constexpr size_t kTables = 2;
  std::vector<uint32_t> counts_;  // (kTables, got - want, want), or empty
  int64_t pending_ = 0;
};

}  // namespace kvcheck

#endif  // OPTIMIZED_COMPARE_BYTE_PAIRS_H_
