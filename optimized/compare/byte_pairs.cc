#include "optimized/compare/byte_pairs.h"

#include <array>
#include <cstring>

#include "optimized/compare/exact_pair.h"

namespace kvcheck {
namespace {

// Tables pay for themselves beyond so many elements; also the most that 32 bits count.
constexpr int64_t kFewElements = 1024;
constexpr int64_t kMostPending = int64_t{1} << 31;

// By difference, then by expected code: near codes are near in memory, so what occurs of the table
// stays in L1.
uint16_t CellOf(std::byte want, std::byte got) {
  const unsigned w = std::to_integer<unsigned>(want);
  const unsigned g = std::to_integer<unsigned>(got);
  return static_cast<uint16_t>((g - w) << 8 | w);
}

}  // namespace

void BytePairs::Count(const PassPlan& plan, const std::byte* want, const std::byte* got,
                      int64_t count, PassSummary* to) {
  if (count < kFewElements && counts_.empty()) {
    for (int64_t i = 0; i < count; ++i) {
      AddPair(plan, std::to_integer<uint64_t>(want[i]), std::to_integer<uint64_t>(got[i]), 1, to);
    }
    return;
  }
  if (counts_.empty()) counts_.resize(kTables * kPairs);
  if (pending_ + count > kMostPending) Flush(plan, to);
  pending_ += count;
  uint32_t* even = counts_.data();
  uint32_t* odd = even + kPairs;
  // Cells are computed by vectors, then counted.
  constexpr int64_t kChunk = 256;
  std::array<uint16_t, kChunk> cells;
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (int64_t k = 0; k < kChunk; ++k) {
      cells[static_cast<size_t>(k)] = CellOf(want[i + k], got[i + k]);
    }
    for (size_t k = 0; k < kChunk; k += 4) {
      uint64_t four;
      std::memcpy(&four, &cells[k], sizeof(four));
      ++even[four & 0xffff];
      ++odd[four >> 16 & 0xffff];
      ++even[four >> 32 & 0xffff];
      ++odd[four >> 48];
    }
  }
  for (; i < count; ++i) ++even[CellOf(want[i], got[i])];
}

void BytePairs::Flush(const PassPlan& plan, PassSummary* to) {
  if (pending_ == 0) return;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    const uint64_t times = uint64_t{counts_[pair]} + counts_[kPairs + pair];
    const uint64_t want = pair & 0xff;
    if (times > 0) AddPair(plan, want, (want + (pair >> 8)) & 0xff, times, to);
  }
  counts_.assign(counts_.size(), 0);
  pending_ = 0;
}

}  // namespace kvcheck
