// Scales of heads that stand together in each token, head by head.

#include "optimized/attention/head_group_scales.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "optimized/attention/kernels.h"
#include "tests/optimized/attention/stored_sequence.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

using optimized::HeadScales;
using optimized::kBlockTokens;
using optimized::kScaleWord;

// Scales of tokens with `heads` heads each; nothing behind them may be read.
struct Tokens {
  Tokens(int64_t count, int64_t heads, uint32_t seed)
      : bytes(count * heads * kScaleWord), heads(heads) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < count * heads * kScaleWord; ++i) {
      bytes.data()[i] = static_cast<std::byte>(random());
    }
  }
  const std::byte* At(int64_t token, int64_t head) const {
    return bytes.data() + (token * heads + head) * kScaleWord;
  }
  GuardedBytes bytes;
  int64_t heads;
};

optimized::StoredHeads Stored(const Tokens& scales, const Tokens& biases) {
  optimized::StoredHeads stored;
  stored.scales = scales.bytes.data();
  stored.biases = biases.bytes.data();
  stored.scale_stride = scales.heads * kScaleWord;
  stored.scale_head_stride = kScaleWord;
  return stored;
}

TEST(AttentionHeadScales, GiveTheTokensOfEveryHeadOneAfterTheOther) {
  int targets = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    const auto kernels = optimized::KernelsFor(true);
    if (kernels.turn_scales == nullptr) continue;
    ++targets;
    for (const int64_t column : {0, 5}) {
      for (const int64_t stored_heads : {4, 8, 11}) {
        const Tokens scales(column + kBlockTokens, stored_heads, 1);
        const Tokens biases(column + kBlockTokens, stored_heads, 2);
        for (const int64_t heads : {4, 8}) {
          for (int64_t head = 0; head + heads <= stored_heads; ++head) {
            HeadScales turned;
            turned.Take(Stored(scales, biases), head, heads, kScaleWord, column, kernels);
            for (int64_t i = 0; i < heads; ++i) {
              const HeadScales::Head of = turned.Of(i);
              ASSERT_NE(of.scales, nullptr);
              for (int64_t token = 0; token < kBlockTokens; ++token) {
                const auto same = [&](const std::byte* got, const Tokens& want) {
                  return std::memcmp(got + token * kScaleWord, want.At(column + token, head + i),
                                     kScaleWord) == 0;
                };
                ASSERT_TRUE(same(of.scales, scales)) << "head " << i << " token " << token;
                ASSERT_TRUE(same(of.biases, biases)) << "head " << i << " token " << token;
              }
            }
          }
        }
      }
    }
  }
  if (targets == 0) GTEST_SKIP() << "no instruction set of this machine turns scales";
}

TEST(AttentionHeadScales, AreNoneWhereNoKernelIsMadeForThem) {
  const auto kernels = optimized::KernelsFor(true);
  const Tokens scales(kBlockTokens, 8, 1);
  const Tokens biases(kBlockTokens, 8, 2);
  const optimized::StoredHeads stored = Stored(scales, biases);
  optimized::StoredHeads apart = stored;
  apart.scale_head_stride = 2 * kScaleWord;
  optimized::AttentionKernels without = kernels;
  without.turn_scales = nullptr;
  HeadScales turned;
  const auto turns = [&](const optimized::StoredHeads& from, int64_t heads, int64_t bytes,
                         const optimized::AttentionKernels& by) {
    // What an earlier block left must not stay.
    turned.Take(stored, 0, 8, kScaleWord, 0, kernels);
    turned.Take(from, 0, heads, bytes, 0, by);
    const HeadScales::Head of = turned.Of(0);
    EXPECT_EQ(of.scales == nullptr, of.biases == nullptr);
    return of.scales != nullptr;
  };
  EXPECT_EQ(turns(stored, 8, kScaleWord, kernels), kernels.turn_scales != nullptr);
  EXPECT_FALSE(turns(stored, 6, kScaleWord, kernels));
  EXPECT_FALSE(turns(stored, 8, 0, kernels));
  EXPECT_FALSE(turns(stored, 4, 8, kernels));
  EXPECT_FALSE(turns(apart, 4, kScaleWord, kernels));
  EXPECT_FALSE(turns(stored, 8, kScaleWord, without));
  turned.Take(stored, 0, 8, kScaleWord, 0, kernels);
  turned.Drop();
  EXPECT_EQ(turned.Of(0).scales, nullptr);
}

}  // namespace
}  // namespace kvcheck
