// q.k over transposed K has the bits of q.k over row-major K.

#include "optimized/attention/transposed_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "optimized/attention/aligned_floats.h"
#include "optimized/attention/block_stage.h"
#include "optimized/attention/packed_codes.h"
#include "tests/optimized/attention/stored_block.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

using optimized::AttentionKernels;
using optimized::BlockRows;
using optimized::BlockStage;
using optimized::kBlockTokens;
using optimized::kQuad;

// Aligned floats.
class Room {
 public:
  explicit Room(int64_t count) : data_(optimized::AlignedFloats(&memory_, count)) {}
  float* data() { return data_; }

 private:
  std::vector<float> memory_;
  float* data_;
};

// Four queries of many sizes as the kernels take them.
struct DrawnQueries {
  DrawnQueries(const StoredBlock& block, const AttentionKernels& kernels, bool factored)
      : padded(optimized::PaddedDim(block.dim)),
        q(kQuad * padded),
        quad(2 * kQuad * padded),
        transposed(kQuad * padded) {
    std::mt19937 random(11);
    for (int64_t h = 0; h < kQuad; ++h) {
      for (int64_t c = 0; c < block.dim; ++c) {
        const int size = static_cast<int>(random() % 20) - 31;
        q.data()[h * padded + c] =
            std::ldexp(static_cast<float>(static_cast<int32_t>(random())), size);
      }
    }
    if (!factored) {
      optimized::TransposeQueries(q.data(), padded, padded, kernels.dot_lanes, transposed.data());
      queries = {q.data(), padded, nullptr, false, transposed.data()};
      return;
    }
    const auto& format = std::get<AffineFormat>(block.format);
    for (int64_t h = 0; h < kQuad; ++h) {
      optimized::PackQuery(format, q.data() + h * padded, block.dim, false, h, quad.data());
    }
    queries = {quad.data(), 0, quad.data() + kQuad * block.dim, false, nullptr};
  }

  int64_t padded;
  Room q, quad, transposed;
  optimized::Queries queries;
};

BlockRows Read(StoredBlock* block, const AttentionKernels& kernels, BlockStage::As as) {
  block->stage.Take(block->heads, 0, block->columns.data(), block->count, true, as, kernels);
  return block->stage.rows();
}

void ExpectSameBits(const AttentionKernels& kernels, const std::string& format, int64_t dim,
                    int64_t count, bool factored) {
  const std::string what = format + " dim " + std::to_string(dim) + " count " +
                           std::to_string(count) + (factored ? " factored" : "");
  StoredBlock block(format, dim, count, static_cast<uint32_t>(dim * 100 + count), factored);
  DrawnQueries drawn(block, kernels, factored);
  Room rows_scores(kQuad * kBlockTokens), transposed_scores(kQuad * kBlockTokens);
  // Scores past the last key are undefined.
  std::fill_n(transposed_scores.data(), kQuad * kBlockTokens,
              std::numeric_limits<float>::quiet_NaN());
  const BlockRows rows =
      Read(&block, kernels, factored ? BlockStage::As::kStored : BlockStage::As::kFloats);
  ASSERT_EQ(rows.transposed, nullptr);
  kernels.Of(rows.kind).dot[1](rows, drawn.queries, rows_scores.data());
  const BlockRows transposed = Read(&block, kernels, BlockStage::As::kTransposed);
  ASSERT_NE(transposed.transposed, nullptr);
  ASSERT_EQ(transposed.kind, rows.kind);
  kernels.Of(rows.kind).transposed_dot(transposed, drawn.queries, transposed_scores.data());
  int64_t other_than_zero = 0;
  for (int64_t h = 0; h < kQuad; ++h) {
    for (int64_t i = 0; i < count; ++i) {
      const float expected = rows_scores.data()[h * kBlockTokens + i];
      other_than_zero += expected != 0;
      ASSERT_EQ(std::bit_cast<uint32_t>(transposed_scores.data()[h * kBlockTokens + i]),
                std::bit_cast<uint32_t>(expected))
          << what << " query " << h << " key " << i;
    }
  }
  ASSERT_EQ(other_than_zero, kQuad * count) << what;
}

TEST(AttentionTransposedKeys, GiveTheBitsOfRowMajorKeys) {
  int targets = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    const AttentionKernels kernels = optimized::KernelsFor(true);
    if (!kernels.CanTranspose()) continue;
    ++targets;
    ASSERT_EQ(kernels.panel_keys, 2 * kernels.dot_lanes);
    for (const int64_t count : {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64}) {
      for (const int64_t dim : {8, 13, 24, 128, 136}) {
        for (const char* format : {"f32", "f16", "bf16", "f8e4m3fn", "f8e5m2"}) {
          ExpectSameBits(kernels, format, dim, count, false);
        }
      }
      for (const int64_t dim : {128, 256, 384}) {
        for (const int bits : {2, 3, 4, 5, 6, 8}) {
          for (const int group : {32, 64, 128}) {
            const std::string format =
                "affine:" + std::to_string(bits) + ":g" + std::to_string(group) + ":f32";
            ExpectSameBits(kernels, format, dim, count, false);
            const auto parsed = ParseKvFormat(WholeLine(format));
            if (optimized::CanFactor(std::get<AffineFormat>(parsed))) {
              ExpectSameBits(kernels, format, dim, count, true);
            }
          }
        }
      }
    }
  }
  if (targets == 0) GTEST_SKIP() << "no instruction set of this machine transposes K";
}

TEST(AttentionTransposedKeys, AreNotUsedByPortableArithmetic) {
  EXPECT_FALSE(optimized::KernelsFor(false).CanTranspose());
}

}  // namespace
}  // namespace kvcheck
