// Scales of a head group, transposed from token-major to head-major.

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

using optimized::HeadGroupScales;
using optimized::kBlockTokens;
using optimized::kScaleWord;

// Scales of tokens with `heads` heads each; nothing past them may be read.
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

TEST(AttentionHeadGroupScales, AreContiguousByHead) {
  int targets = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    const auto kernels = optimized::KernelsFor(true);
    if (kernels.transpose_scales == nullptr) continue;
    ++targets;
    for (const int64_t column : {0, 5}) {
      for (const int64_t stored_heads : {4, 8, 11}) {
        const Tokens scales(column + kBlockTokens, stored_heads, 1);
        const Tokens biases(column + kBlockTokens, stored_heads, 2);
        for (const int64_t heads : {4, 8}) {
          for (int64_t head = 0; head + heads <= stored_heads; ++head) {
            HeadGroupScales transposed;
            transposed.Take(Stored(scales, biases), head, heads, kScaleWord, column, kernels);
            for (int64_t i = 0; i < heads; ++i) {
              const HeadGroupScales::Head of = transposed.Of(i);
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
  if (targets == 0) GTEST_SKIP() << "no instruction set of this machine transposes scales";
}

TEST(AttentionHeadGroupScales, AreNoneWhereNoKernelHasTheShape) {
  const auto kernels = optimized::KernelsFor(true);
  const Tokens scales(kBlockTokens, 8, 1);
  const Tokens biases(kBlockTokens, 8, 2);
  const optimized::StoredHeads stored = Stored(scales, biases);
  optimized::StoredHeads apart = stored;
  apart.scale_head_stride = 2 * kScaleWord;
  optimized::AttentionKernels without = kernels;
  without.transpose_scales = nullptr;
  HeadGroupScales transposed;
  const auto transposes = [&](const optimized::StoredHeads& from, int64_t heads, int64_t bytes,
                              const optimized::AttentionKernels& by) {
    // What an earlier block left must not stay.
    transposed.Take(stored, 0, 8, kScaleWord, 0, kernels);
    transposed.Take(from, 0, heads, bytes, 0, by);
    const HeadGroupScales::Head of = transposed.Of(0);
    EXPECT_EQ(of.scales == nullptr, of.biases == nullptr);
    return of.scales != nullptr;
  };
  EXPECT_EQ(transposes(stored, 8, kScaleWord, kernels), kernels.transpose_scales != nullptr);
  EXPECT_FALSE(transposes(stored, 6, kScaleWord, kernels));
  EXPECT_FALSE(transposes(stored, 8, 0, kernels));
  EXPECT_FALSE(transposes(stored, 4, 8, kernels));
  EXPECT_FALSE(transposes(apart, 4, kScaleWord, kernels));
  EXPECT_FALSE(transposes(stored, 8, kScaleWord, without));
  transposed.Take(stored, 0, 8, kScaleWord, 0, kernels);
  transposed.Drop();
  EXPECT_EQ(transposed.Of(0).scales, nullptr);
}

}  // namespace
}  // namespace kvcheck
