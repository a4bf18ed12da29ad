#include "tools/faults/page_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kFar = int64_t{1} << 31;
constexpr int64_t kFloat = sizeof(float);

}  // namespace

PageMemory::PageMemory(const AttentionCase& c, const TensorMap& inputs, const KernelSteps& steps)
    : steps_(steps),
      k_dim_(static_cast<size_t>(c.k_dim)),
      v_dim_(static_cast<size_t>(c.v_dim)),
      pages_((c.kv_len + kPageTokens - 1) / kPageTokens),
      region_pages_(pages_ + 2),
      batch_bytes_(0) {
  const int64_t slice = c.kv_heads * region_pages_ * kPageTokens * (c.k_dim + c.v_dim) * kFloat;
  batch_bytes_ = steps.far_batches ? kFar : slice;
  // What wraps around lands below the first batch row.
  const int64_t below = steps.far_batches ? kFar : 0;
  mapped_ = below + (c.batch - 1) * batch_bytes_ + slice + static_cast<int64_t>(kLanes) * kFloat;
  memory_ = mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) {
    throw Error(ErrorCode::kUnsupported,
                "the system refuses memory that is reserved and hardly used: allow overcommit");
  }
  base_ = static_cast<float*>(memory_) + below / kFloat;
  Fill(c, inputs);
}

PageMemory::~PageMemory() { munmap(memory_, static_cast<size_t>(mapped_)); }

int64_t PageMemory::PhysicalPage(int64_t logical) const {
  return steps_.page != nullptr ? steps_.page(logical, pages_) : pages_ - logical;
}

int64_t PageMemory::Offset(int64_t batch, int64_t head, int64_t page, int64_t slot,
                           size_t stride) const {
  const int64_t slots = (head * region_pages_ + page) * kPageTokens + slot;
  return batch * batch_bytes_ + slots * static_cast<int64_t>(stride) * kFloat;
}

void PageMemory::Fill(const AttentionCase& c, const TensorMap& inputs) {
  const size_t stride = k_dim_ + v_dim_;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<double> row(std::max(k_dim_, v_dim_));
  const auto write = [&](const char* name, int64_t at, size_t dim, float* to) {
    const std::span<double> values(row.data(), dim);
    DecodeTo(Get(inputs, name), at * static_cast<int64_t>(dim), values);
    for (size_t i = 0; i < dim; ++i) to[i] = static_cast<float>(values[i]);
  };
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.kv_heads; ++h) {
      const int64_t region = region_pages_ * kPageTokens;
      float* first = At(Offset(b, h, 0, 0, stride));
      std::fill_n(first, static_cast<size_t>(region) * stride, nan);
      const size_t page = static_cast<size_t>(kPageTokens) * stride;
      std::fill_n(first + static_cast<size_t>(pages_ + 1) * page, page, 1.0F);
      for (int64_t t = 0; t < c.kv_len; ++t) {
        // A writer that is right: the block table before anything went wrong.
        int64_t logical = t / kPageTokens;
        if (steps_.pages_moved && logical < 2 && pages_ > 1) logical = 1 - logical;
        float* slot = At(Offset(b, h, pages_ - logical, t % kPageTokens, stride));
        const int64_t at = (b * c.kv_heads + h) * c.kv_len + t;
        write("k", at, k_dim_, slot);
        write("v", at, v_dim_, slot + k_dim_);
      }
    }
  }
}

const float* PageMemory::Slot(int64_t batch, int64_t head, int64_t token) const {
  const int64_t logical = token / kPageTokens;
  const int64_t page = PhysicalPage(logical);
  if (page == 0) return nullptr;
  const int64_t owner = logical == 0 && steps_.first_page_of_batch != nullptr
                            ? steps_.first_page_of_batch(batch)
                            : batch;
  const size_t stride =
      steps_.slot_stride != nullptr ? steps_.slot_stride(k_dim_, v_dim_) : k_dim_ + v_dim_;
  const int64_t bytes = Offset(owner, head, page, token % kPageTokens, stride);
  return At(steps_.offset != nullptr ? steps_.offset(bytes) : bytes);
}

}  // namespace kvcheck
