// Numbers as integers times a step, and the kernels that multiply them with codes, against their
// definition written out.

#include "optimized/attention/fixed_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "optimized/attention/aligned_floats.h"
#include "tests/optimized/attention/fixed_definition.h"
#include "tests/optimized/attention/stored_block.h"

namespace kvcheck {
namespace {

using optimized::AttentionKernels;
using optimized::BlockRows;
using optimized::FixedStep;
using optimized::FixedStepOf;
using optimized::kBlockTokens;
using optimized::kQuad;

TEST(AttentionFixedPoint, IntegersStandForNumbersWithinTheStatedError) {
  constexpr uint32_t kInfinite = 0x7f800000;
  int checked = 0;
  for (uint32_t high = 0; high < kInfinite; high += 0x00080000) {
    for (const uint32_t low : {0u, 1u, 0x3ffffu, 0x40000u, 0x7ffffu}) {
      const auto largest = std::bit_cast<float>(high + low);
      const FixedStep step = FixedStepOf(largest);
      const auto exact = static_cast<double>(step.step);
      for (const float part : {1.0f, 0.999999f, 0.5f, 0.1f, 0.0f, 0x1p-23f, 0x1p-40f}) {
        for (const float sign : {1.0f, -1.0f}) {
          const float x = sign * part * largest;
          const int32_t n = IntegerOf(x, step);
          ASSERT_LE(std::abs(n), optimized::kFixedMost) << largest;
          ASSERT_LE(std::fabs(n * exact - static_cast<double>(x)),
                    optimized::kFixedError * static_cast<double>(largest))
              << x << " of " << largest;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 250'000);
  EXPECT_TRUE(std::isnan(FixedStepOf(std::numeric_limits<float>::infinity()).step));
  EXPECT_TRUE(std::isnan(FixedStepOf(std::numeric_limits<float>::quiet_NaN()).step));
}

TEST(AttentionFixedPoint, ThreePartsMakeTheInteger) {
  constexpr int32_t kMost = optimized::kFixedMost;
  for (int32_t n = -kMost; n <= kMost; n += n % 251 == 0 || kMost - std::abs(n) < 999 ? 1 : 5) {
    const uint32_t bytes = optimized::FixedBytes(n);
    int32_t sum = 0;
    for (int part = 2; part >= 0; --part) {
      sum = sum * 256 + static_cast<int8_t>(bytes >> (8 * part) & 0xff);
    }
    ASSERT_EQ(sum, n);
  }
}

TEST(AttentionFixedPoint, WordsNameEveryChannelOnce) {
  using enum optimized::FixedLayout;
  for (const optimized::FixedLayout layout :
       {kBytes, kNibbles, kSignedBytes, kHalves, kTableHalves, kFiveHalves}) {
    std::vector<int> seen(256);
    for (int64_t word = 0; word < 64; ++word) {
      for (int64_t byte = 0; byte < 4; ++byte) {
        const int64_t channel = optimized::FixedChannel(layout, word, byte);
        EXPECT_EQ(channel / 32, word / 8);  // words of a group are those of its channels
        ++seen[static_cast<size_t>(channel)];
      }
    }
    EXPECT_EQ(seen, std::vector<int>(256, 1));
  }
}

// The fixed-point kernels, if this machine has them.
class AttentionFixedKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels_.IsFixedPoint()) GTEST_SKIP() << "this machine has no dot product of bytes (VNNI)";
  }
  const AttentionKernels kernels_ = optimized::KernelsFor(true);
};

// size: of the queries and weights.
void ExpectFixed(const AttentionKernels& kernels, const std::string& format, int64_t dim,
                 int64_t count, float size) {
  StoredBlock block(format, dim, count, static_cast<uint32_t>(dim * 100 + count), true);
  const optimized::FixedOperand operand = *optimized::FixedOperandOf(block.format);
  const FixedDefinition definition(block);
  std::mt19937 random(static_cast<uint32_t>(count));
  const auto draw = [&] {
    return std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -31) * size;
  };
  std::vector<float> q(static_cast<size_t>(kQuad * dim));
  for (float& value : q) value = draw();
  q[5] *= 100;  // far above the others
  const int64_t quad_floats = optimized::FixedQuadFloats(dim, operand.group);
  std::vector<float> memory;
  float* quad = optimized::AlignedFloats(&memory, quad_floats + kQuad * dim);
  float* out = quad + quad_floats;
  for (int64_t h = 0; h < kQuad; ++h) {
    optimized::PackFixedQuery(operand, q.data() + h * dim, dim, h, quad);
  }
  using As = optimized::BlockStage::As;
  for (const As as : {As::kStored, As::kTransposed, As::kFloats}) {
    block.stage.Take(block.heads, 0, block.columns.data(), count, true, as, kernels);
    const BlockRows& rows = block.stage.rows();
    for (const int64_t width : {int64_t{1}, kQuad}) {
      const size_t wide = width == 1 ? 0 : 1;
      for (int64_t row = 0; row < kQuad; row += width) {
        const std::string what = format + " dim " + std::to_string(dim) + " count " +
                                 std::to_string(count) + " width " + std::to_string(width) +
                                 " row " + std::to_string(row) + " as " +
                                 std::to_string(static_cast<int>(as));
        const optimized::Queries queries = {quad + row * optimized::kFixedParts, 0,
                                            quad + optimized::FixedSums(dim, operand.group) + row,
                                            false, nullptr};
        std::vector<float> scores(static_cast<size_t>(kBlockTokens * width));
        const bool dots = as == As::kStored || (as == As::kTransposed && width == kQuad);
        if (as == As::kStored) kernels.Of(rows.kind).dot[wide](rows, queries, scores.data());
        if (as == As::kTransposed && dots)
          kernels.Of(rows.kind).transposed_dot(rows, queries, scores.data());
        for (int64_t h = 0; dots && h < width; ++h) {
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(scores[static_cast<size_t>(h * kBlockTokens + i)],
                      definition.Dot(&q[static_cast<size_t>((row + h) * dim)], i))
                << what << " key " << i;
          }
        }
        if (as == As::kTransposed) continue;
        std::vector<float> weights(scores.size(), std::numeric_limits<float>::quiet_NaN());
        std::vector<float> rescale(static_cast<size_t>(width));
        for (int64_t h = 0; h < width; ++h) {
          for (int64_t i = 0; i < count; ++i) {
            weights[static_cast<size_t>(h * kBlockTokens + i)] = std::fabs(draw());
          }
          weights[static_cast<size_t>(h * kBlockTokens + count / 2)] = 0;
        }
        for (float& factor : rescale) factor = std::fabs(draw() / size);
        std::vector<float> before(static_cast<size_t>(width * dim));
        for (float& value : before) value = draw();
        std::copy(before.begin(), before.end(), out);
        kernels.Of(rows.kind).sum[wide](rows, weights.data(), rescale.data(), out, dim);
        for (int64_t h = 0; h < width; ++h) {
          for (int64_t c = 0; c < dim; ++c) {
            const float kept =
                before[static_cast<size_t>(h * dim + c)] * rescale[static_cast<size_t>(h)];
            ASSERT_EQ(out[h * dim + c],
                      definition.Sum(&weights[static_cast<size_t>(h * kBlockTokens)], c, kept))
                << what << " channel " << c;
          }
        }
      }
    }
  }
}

TEST_F(AttentionFixedKernels, AreTheirDefinitionStoredTransposedAndWidened) {
  for (const char* format : {"affine:8:g32:f32", "affine:8:g64:f32", "affine:8:g128:f32",
                             "affine:4:g64:f32", "affine:4:g128:f32", "affine:3:g64:f32", "q8_0",
                             "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"}) {
    const int64_t group = GridOf(ParseKvFormat(WholeLine(format)))->group;
    for (const int64_t dim : {group, 2 * group, 3 * group, 5 * group}) {
      for (const int64_t count : {1, 2, 3, 4, 7, 15, 16, 17, 31, 32, 33, 62, 63, 64}) {
        for (const float size : {1.0f, 0x1p90f, 0x1p-90f, 0x1p-120f, 0x1p-140f}) {
          if (size != 1 && count != 3 && count != 64) continue;
          ExpectFixed(kernels_, format, dim, count, size);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// The largest codes, and parts as far from zero as they come: nothing overflows on its way.
void ExpectLargestSums(const AttentionKernels& kernels, StoredBlock* block) {
  const int64_t dim = block->dim;
  const FixedDefinition definition(*block);
  const optimized::FixedOperand operand = *optimized::FixedOperandOf(block->format);
  std::vector<float> memory;
  float* quad = optimized::AlignedFloats(&memory, optimized::FixedQuadFloats(dim, operand.group));
  const float* sums = quad + optimized::FixedSums(dim, operand.group);
  const BlockRows& rows = block->Take(kernels, false);
  // b1 = b0 = -128, b0 = -128 and b1 = 127, b2 as large as it comes.
  for (const int32_t n : {-32896, 32512 - 128, 8339000, -8339000, 8323071}) {
    std::vector<float> q(static_cast<size_t>(dim), static_cast<float>(n));
    for (int64_t c = 0; c < dim; c += operand.group) {
      q[static_cast<size_t>(c)] = std::copysign(0x1.fcp22f, q[1]);  // a step of 1
    }
    ASSERT_EQ(FixedStepOf(std::max(std::fabs(q[0]), std::fabs(q[1]))).step, 1.0f);
    for (int64_t h = 0; h < kQuad; ++h) optimized::PackFixedQuery(operand, q.data(), dim, h, quad);
    std::vector<float> scores(static_cast<size_t>(kQuad * kBlockTokens));
    kernels.Of(rows.kind).dot[1](rows, {quad, 0, sums, false, nullptr}, scores.data());
    for (int64_t i = 0; i < kBlockTokens; ++i) {
      ASSERT_EQ(scores[static_cast<size_t>(i)], definition.Dot(q.data(), i)) << n;
    }
    // Weights times scales of one size.
    std::vector<float> weights(static_cast<size_t>(kQuad * kBlockTokens), std::fabs(q[1]));
    weights[0] = std::fabs(q[0]);
    const std::vector<float> rescale(static_cast<size_t>(kQuad), 1.0f);
    std::vector<float> out(static_cast<size_t>(kQuad * dim));
    kernels.Of(rows.kind).sum[1](rows, weights.data(), rescale.data(), out.data(), dim);
    for (int64_t c = 0; c < dim; ++c) {
      ASSERT_EQ(out[static_cast<size_t>(c)], definition.Sum(weights.data(), c, 0)) << n;
    }
  }
}

TEST_F(AttentionFixedKernels, HoldTheLargestSums) {
  StoredBlock affine("affine:8:g128:f32", 128, kBlockTokens, 1, true);
  std::fill(affine.codes.begin(), affine.codes.end(), std::byte{0xff});
  ExpectLargestSums(kernels_, &affine);
  // Signed codes at both ends, of a scale of 1.
  for (const std::byte code : {std::byte{0x80}, std::byte{0x7f}}) {
    StoredBlock signed_codes("q8_0", 128, kBlockTokens, 1, true);
    std::fill(signed_codes.codes.begin(), signed_codes.codes.end(), code);
    for (size_t at = 0; at < signed_codes.codes.size(); at += 34) {
      signed_codes.codes[at] = std::byte{0x00};
      signed_codes.codes[at + 1] = std::byte{0x3c};
    }
    ExpectLargestSums(kernels_, &signed_codes);
  }
}

TEST_F(AttentionFixedKernels, AQueryThatIsNotFiniteGivesNoNumber) {
  const int64_t dim = 64;
  for (const char* format : {"affine:8:g64:f32", "q8_0", "q4_1"}) {
    StoredBlock block(format, dim, 3, 1, true);
    const optimized::FixedOperand operand = *optimized::FixedOperandOf(block.format);
    const BlockRows& rows = block.Take(kernels_, false);
    std::vector<float> memory;
    float* quad = optimized::AlignedFloats(&memory, optimized::FixedQuadFloats(dim, operand.group));
    const float* sums = quad + optimized::FixedSums(dim, operand.group);
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> q(static_cast<size_t>(dim), 1.0f);
      for (int64_t h = 0; h < kQuad; ++h) {
        q[7] = h == 2 ? bad : 1.0f;
        optimized::PackFixedQuery(operand, q.data(), dim, h, quad);
      }
      std::vector<float> scores(static_cast<size_t>(kQuad * kBlockTokens));
      kernels_.Of(rows.kind).dot[1](rows, {quad, 0, sums, false, nullptr}, scores.data());
      for (int64_t h = 0; h < kQuad; ++h) {
        for (int64_t i = 0; i < 3; ++i) {
          EXPECT_EQ(std::isnan(scores[static_cast<size_t>(h * kBlockTokens + i)]), h == 2);
        }
      }
    }
  }
}

// Quads of rows of any sizes, among them zero and what is not finite, at both widths: each has the
// step of its own.
TEST_F(AttentionFixedKernels, StepsOfRowsDoNotMix) {
  const int64_t dim = 32;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float sizes[] = {0.0f, 0x1p-149f, 0x1p-120f,  0x1.fffp-101f, 0x1p-100f,
                         1.0f, 0x1.fcp0f, 0x1.fd1p0f, 0x1p100f,      0x1.fffffep127f};
  for (const char* format : {"affine:8:g32:f32", "affine:3:g32:f32"}) {
    for (const int64_t count : {int64_t{5}, kBlockTokens}) {
      StoredBlock block(format, dim, count, 11, true);
      for (int64_t i = 0; i < count; ++i) {
        const float one = 1;
        std::memcpy(&block.scales[static_cast<size_t>(i) * sizeof(float)], &one, sizeof(one));
      }
      const FixedDefinition definition(block);
      const BlockRows& rows = block.Take(kernels_, false);
      for (size_t first = 0; first < std::size(sizes); ++first) {
        std::vector<float> weights(static_cast<size_t>(kQuad * kBlockTokens));
        std::vector<float> rescale(static_cast<size_t>(kQuad), 1.0f);
        for (int64_t h = 0; h < kQuad; ++h) {
          const float size = sizes[(first + static_cast<size_t>(h) * 3) % std::size(sizes)];
          for (int64_t i = 0; i < count; ++i) {
            weights[static_cast<size_t>(h * kBlockTokens + i)] =
                size * static_cast<float>(i + 1) / static_cast<float>(count);
          }
        }
        const auto bad = static_cast<int64_t>(first % 5);  // 4: none
        if (bad < kQuad) {
          weights[static_cast<size_t>(bad * kBlockTokens + 2)] =
              first % 2 == 0 ? kInfinity : std::numeric_limits<float>::quiet_NaN();
        }
        for (const int64_t width : {int64_t{1}, kQuad}) {
          for (int64_t row = 0; row < kQuad; row += width) {
            std::vector<float> out(static_cast<size_t>(width * dim));
            kernels_.Of(rows.kind).sum[width == 1 ? 0 : 1](
                rows, &weights[static_cast<size_t>(row * kBlockTokens)], rescale.data(), out.data(),
                dim);
            for (int64_t h = 0; h < width; ++h) {
              for (int64_t c = 0; c < dim; ++c) {
                const float got = out[static_cast<size_t>(h * dim + c)];
                const float want =
                    definition.Sum(&weights[static_cast<size_t>((row + h) * kBlockTokens)], c, 0);
                if (row + h == bad) {
                  ASSERT_FALSE(std::isfinite(got)) << format << " " << first;
                } else if (std::isnan(want)) {  // of biases that overflow
                  ASSERT_TRUE(std::isnan(got)) << format << " " << first;
                } else {
                  ASSERT_EQ(got, want) << format << " " << first << " row " << row + h;
                }
              }
            }
          }
        }
      }
    }
  }
}

// Rows that were joined for others: a query sees the first of them alone.
TEST_F(AttentionFixedKernels, SumAPrefixOfInterleavedRows) {
  const int64_t dim = 64;
  for (const char* format :
       {"affine:8:g64:f32", "affine:4:g64:f32", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"}) {
    StoredBlock block(format, dim, kBlockTokens, 5, true);
    block.stage.Take(block.heads, 0, block.columns.data(), kBlockTokens, true,
                     optimized::BlockStage::As::kFloats, kernels_);
    BlockRows some = block.stage.rows();
    std::vector<float> weights(static_cast<size_t>(kQuad * kBlockTokens), 0.75f);
    const std::vector<float> rescale(static_cast<size_t>(kQuad), 1.0f);
    for (const int64_t count : {1, 2, 3, 4, 5, 31, 62, 63}) {
      some.count = count;
      StoredBlock first(format, dim, count, 5, true);
      first.codes.assign(block.codes.begin(),
                         block.codes.begin() + static_cast<int64_t>(first.codes.size()));
      first.scales.assign(block.scales.begin(),
                          block.scales.begin() + static_cast<int64_t>(first.scales.size()));
      first.biases.assign(block.biases.begin(),
                          block.biases.begin() + static_cast<int64_t>(first.biases.size()));
      const FixedDefinition definition(first);
      std::vector<float> out(static_cast<size_t>(kQuad * dim));
      kernels_.Of(some.kind).sum[1](some, weights.data(), rescale.data(), out.data(), dim);
      for (int64_t h = 0; h < kQuad; ++h) {
        for (int64_t c = 0; c < dim; ++c) {
          ASSERT_EQ(out[static_cast<size_t>(h * dim + c)], definition.Sum(weights.data(), c, 0))
              << format << " count " << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
