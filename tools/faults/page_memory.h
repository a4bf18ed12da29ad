// The pages of the small kernel: for every batch row and key/value head a region of pages, each of
// kPageTokens slots, each slot one row of K and one of V. Slots without a token hold NaN, the page
// that no token has owned for long holds ones.

#ifndef TOOLS_FAULTS_PAGE_MEMORY_H_
#define TOOLS_FAULTS_PAGE_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "reference/spec/case.h"
#include "reference/spec/tensor.h"
#include "tools/faults/small_kernel.h"

namespace kvcheck {

inline constexpr int64_t kPageTokens = 16;
// Slots are read in lanes of eight: so many floats past the last one may be read.
inline constexpr size_t kLanes = 8;

class PageMemory {
 public:
  // Errors: kUnsupported where the system refuses memory.
  PageMemory(const AttentionCase& c, const TensorMap& inputs, const KernelSteps& steps);
  ~PageMemory();
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;

  // The row of K at logical token t, that of V follows it (v_offset floats). nullptr: its page is
  // skipped.
  const float* Slot(int64_t batch, int64_t head, int64_t token) const;
  size_t v_offset() const { return k_dim_; }
  int64_t pages() const { return pages_; }

 private:
  int64_t Offset(int64_t batch, int64_t head, int64_t page, int64_t slot, size_t stride) const;
  int64_t PhysicalPage(int64_t logical) const;
  float* At(int64_t bytes) const { return base_ + bytes / static_cast<int64_t>(sizeof(float)); }
  void Fill(const AttentionCase& c, const TensorMap& inputs);

  const KernelSteps& steps_;
  size_t k_dim_;
  size_t v_dim_;
  int64_t pages_;
  int64_t region_pages_;  // of a head: also the null page 0 and a stale one
  int64_t batch_bytes_;   // from one batch row to the next
  int64_t mapped_ = 0;
  void* memory_ = nullptr;  // as mapped
  float* base_ = nullptr;   // of batch row 0
};

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_PAGE_MEMORY_H_
