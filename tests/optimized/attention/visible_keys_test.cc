// What is said of the blocks of a set of queries, against what each of them sees of each block.

#include "optimized/attention/visible_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kvcheck::optimized {
namespace {

constexpr int64_t kBlocks = 5;
constexpr uint64_t kAll = ~uint64_t{0};

// Numbers around the edges of blocks.
class Drawn {
 public:
  explicit Drawn(uint32_t seed) : random_(seed) {}

  bool OneIn(uint32_t count) { return random_() % count == 0; }
  int64_t Position() {
    const auto edge = static_cast<int64_t>(random_() % (kBlocks + 1)) * kBlockTokens;
    return std::max<int64_t>(0, edge + static_cast<int64_t>(random_() % 5) - 2);
  }

 private:
  std::mt19937 random_;
};

TEST(AttentionVisibleKeys, WholeAndTouchedBlocksAreThoseThatQueriesSee) {
  Drawn drawn(1);
  const std::vector<uint64_t> bits(kBlocks + 1, kAll);
  int64_t whole_blocks = 0, untouched_blocks = 0;
  for (int set = 0; set < 20000; ++set) {
    const bool plain = drawn.OneIn(2);  // neither kept positions nor bits nor the mean of V
    std::vector<VisibleKeys> queries(drawn.OneIn(2) ? 1 : 3);
    WholeSpan whole;
    BlockSpan span;
    for (VisibleKeys& keys : queries) {
      if (drawn.OneIn(2)) keys.from = drawn.Position();
      if (!drawn.OneIn(8)) keys.end = drawn.Position();
      if (!plain && drawn.OneIn(2)) keys.keep = drawn.Position();
      if (!plain && drawn.OneIn(6)) keys.bits = bits.data();
      if (!plain && drawn.OneIn(6)) keys.uniform = true;
      whole.Add(keys);
      span.Add(keys);
    }
    for (int64_t block = 0; block < kBlocks; ++block) {
      bool all = true, some = false, special = false;
      for (const VisibleKeys& keys : queries) {
        all = all && keys.Word(block) == kAll;
        some = some || keys.Word(block) != 0;
        special = special || keys.bits != nullptr || keys.uniform;
      }
      if (whole.Covers(block)) {
        ASSERT_TRUE(all && !special) << "set " << set << " block " << block;
        ++whole_blocks;
      } else if (plain) {
        ASSERT_FALSE(all) << "set " << set << " block " << block;
      }
      if (some) {
        ASSERT_TRUE(span.Touches(block)) << "set " << set << " block " << block;
      }
      untouched_blocks += span.Touches(block) ? 0 : 1;
    }
  }
  EXPECT_GT(whole_blocks, 10000);
  EXPECT_GT(untouched_blocks, 10000);
}

}  // namespace
}  // namespace kvcheck::optimized
