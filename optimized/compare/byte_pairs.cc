#include "optimized/compare/byte_pairs.h"

#include <cstring>

#include "optimized/compare/exact_pair.h"

namespace kvcheck {
namespace {

// Tables pay for themselves beyond so many elements; also the most that 32 bits count.
constexpr int64_t kFewElements = 1024;
constexpr int64_t kMostPending = int64_t{1} << 31;

uint64_t LoadEight(const std::byte* from) {
  uint64_t eight;
  std::memcpy(&eight, from, sizeof(eight));
  return eight;
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
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const uint64_t wants = LoadEight(want + i);
    const uint64_t gots = LoadEight(got + i);
    for (int shift = 0; shift < 64; shift += 16) {
      ++even[(wants >> shift & 0xff) << 8 | (gots >> shift & 0xff)];
      ++odd[(wants >> (shift + 8) & 0xff) << 8 | (gots >> (shift + 8) & 0xff)];
    }
  }
  for (; i < count; ++i) {
    ++even[std::to_integer<size_t>(want[i]) << 8 | std::to_integer<size_t>(got[i])];
  }
}

void BytePairs::Flush(const PassPlan& plan, PassSummary* to) {
  if (pending_ == 0) return;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    const uint64_t times = uint64_t{counts_[pair]} + counts_[kPairs + pair];
    if (times > 0) AddPair(plan, pair >> 8, pair & 0xff, times, to);
  }
  counts_.assign(counts_.size(), 0);
  pending_ = 0;
}

}  // namespace kvcheck
