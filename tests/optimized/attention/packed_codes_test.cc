// The factored kernels over packed codes against their definition written out: scales and biases
// out of the sums, the same bits whether codes are shifted or left in place.

#include "optimized/attention/packed_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "optimized/attention/aligned_floats.h"
#include "tests/optimized/attention/horizontal_sum.h"
#include "tests/optimized/attention/stored_block.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

using optimized::AttentionKernels;
using optimized::BlockRows;
using optimized::kBlockTokens;
using optimized::kQuad;
using optimized::RowKind;

// Codes, scales and biases of a block, and what the factored kernels compute of them.
class FactoredDefinition {
 public:
  explicit FactoredDefinition(const StoredBlock& block)
      : format_(std::get<AffineFormat>(block.format)),
        dim_(block.dim),
        count_(block.count),
        scales_(StoredBlock::Floats(block.scales)),
        biases_(StoredBlock::Floats(block.biases)) {
    for (const int code : block.Codes()) codes_.push_back(static_cast<float>(code));
  }
  int64_t groups() const { return dim_ / format_.group_size; }

  float Dot(const float* q, int64_t key) const {
    float score = 0;
    for (int64_t g = 0; g < groups(); ++g) {
      std::vector<float> group(q + g * format_.group_size, q + (g + 1) * format_.group_size);
      std::vector<float> lanes(8);
      for (size_t i = 0; i < group.size(); ++i) lanes[i % 8] += group[i];
      const float bias = Get(biases_, key, g);
      score = g == 0 ? bias * HorizontalSum(lanes) : std::fma(bias, HorizontalSum(lanes), score);
    }
    for (int64_t g = 0; g < groups(); ++g) {
      std::vector<float> runs;
      for (int64_t c = g * format_.group_size; c < (g + 1) * format_.group_size; ++c) {
        if (c % 32 == 0) runs.push_back(0);
        runs.back() = std::fma(Code(key, c), q[c], runs.back());
      }
      score = std::fma(AddNeighbours(runs), Get(scales_, key, g), score);
    }
    return score;
  }
  // Shapes: weights (count); the result has one of each group.
  std::vector<float> BiasSums(const float* weights, size_t lanes) const {
    std::vector<float> sums;
    for (int64_t g = 0; g < groups(); ++g) {
      std::vector<float> biases(lanes);
      for (int64_t i = 0; i < count_; ++i) {
        float& bias = biases[static_cast<size_t>(i) % lanes];
        bias = std::fma(weights[i], Get(biases_, i, g), bias);
      }
      sums.push_back(HorizontalSum(biases));
    }
    return sums;
  }
  float Sum(const float* weights, int64_t channel, const std::vector<float>& bias_sums,
            float kept) const {
    const int64_t g = channel / format_.group_size;
    float codes = 0;
    for (int64_t i = 0; i < count_; ++i) {
      codes = std::fma(Code(i, channel), weights[i] * Get(scales_, i, g), codes);
    }
    return kept + (codes + bias_sums[static_cast<size_t>(g)]);
  }

 private:
  static float AddNeighbours(std::vector<float> sums) {
    for (size_t step = 1; step < sums.size(); step *= 2) {
      for (size_t i = 0; i < sums.size(); i += 2 * step) sums[i] += sums[i + step];
    }
    return sums[0];
  }
  float Get(const std::vector<float>& of, int64_t key, int64_t g) const {
    return of[static_cast<size_t>(key * groups() + g)];
  }
  float Code(int64_t key, int64_t channel) const {
    return codes_[static_cast<size_t>(key * dim_ + channel)];
  }

  AffineFormat format_;
  int64_t dim_, count_;
  std::vector<float> codes_, scales_, biases_;
};

// small: a factor of queries and weights; below 1 kernels shift codes down.
void ExpectFactored(const std::string& format, int64_t dim, int64_t count, bool widen,
                    bool in_place, float small) {
  const AttentionKernels kernels = optimized::KernelsFor(true);
  StoredBlock block(format, dim, count, static_cast<uint32_t>(dim * 100 + count), true);
  const auto& affine = std::get<AffineFormat>(block.format);
  ASSERT_TRUE(optimized::CanFactor(affine));
  const FactoredDefinition definition(block);
  const BlockRows& rows = block.Take(kernels, widen);
  ASSERT_EQ(rows.kind, widen              ? RowKind::kFactoredWidened
                       : affine.bits == 4 ? RowKind::kFactored4
                                          : RowKind::kFactored8);
  std::mt19937 random(7);
  const auto draw = [&] {
    return std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -31);
  };
  std::vector<float> q(static_cast<size_t>(kQuad * dim));
  for (float& value : q) value = draw() * small;
  ASSERT_EQ(optimized::CanPrescale(q.data(), kQuad * dim), small == 1);
  const int64_t quad_floats = optimized::PackedQuadFloats(dim, affine.group_size);
  std::vector<float> memory;
  float* quad = optimized::AlignedFloats(&memory, quad_floats + kQuad * dim);
  float* out = quad + quad_floats;
  for (int64_t h = 0; h < kQuad; ++h) {
    optimized::PackQuery(affine, q.data() + h * dim, dim, in_place, h, quad);
  }
  for (const int64_t width : {int64_t{1}, kQuad}) {
    const size_t wide = width == 1 ? 0 : 1;
    for (int64_t row = 0; row < kQuad; row += width) {
      const std::string what = format + " dim " + std::to_string(dim) + " width " +
                               std::to_string(width) + " row " + std::to_string(row);
      std::vector<float> scores(static_cast<size_t>(kBlockTokens * width));
      if (!widen) {
        kernels.Of(rows.kind).dot[wide](
            rows, {quad + row, 0, quad + kQuad * dim + row, in_place, nullptr}, scores.data());
      }
      std::vector<float> weights(scores.size()), rescale(static_cast<size_t>(width));
      for (float& weight : weights) weight = std::fabs(draw()) * small;
      weights[weights.size() / 2] = 0;
      for (float& factor : rescale) factor = std::fabs(draw());
      std::vector<float> before(static_cast<size_t>(width * dim));
      for (float& value : before) value = draw();
      std::copy(before.begin(), before.end(), out);
      kernels.Of(rows.kind).sum[wide](rows, weights.data(), rescale.data(), out, dim);
      for (int64_t h = 0; h < width; ++h) {
        for (int64_t i = 0; !widen && i < count; ++i) {
          ASSERT_EQ(scores[static_cast<size_t>(h * kBlockTokens + i)],
                    definition.Dot(&q[static_cast<size_t>((row + h) * dim)], i))
              << what << " key " << i;
        }
        const float* of_head = weights.data() + h * kBlockTokens;
        const std::vector<float> bias_sums =
            definition.BiasSums(of_head, static_cast<size_t>(kernels.packed_lanes));
        for (int64_t at = 0; at < dim; ++at) {
          const float kept =
              before[static_cast<size_t>(h * dim + at)] * rescale[static_cast<size_t>(h)];
          // Widened codes are in channel order, packed ones in field order.
          const int64_t channel =
              widen ? at : optimized::PackedChannel(affine.bits, kernels.packed_lanes, dim, at);
          ASSERT_EQ(out[h * dim + at], definition.Sum(of_head, channel, bias_sums, kept))
              << what << " place " << at;
        }
      }
    }
  }
}

TEST(AttentionPackedCodes, AreSummedAsDefinedShiftedOrInPlace) {
  int targets = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    if (!optimized::KernelsFor(true).Factors()) continue;
    ++targets;
    for (const char* format : {"affine:8:g32:f32", "affine:8:g64:f32", "affine:8:g128:f32",
                               "affine:4:g64:f32", "affine:4:g128:f32", "affine:3:g64:f32"}) {
      const int64_t group = std::get<AffineFormat>(ParseKvFormat(WholeLine(format))).group_size;
      for (const int64_t dim : {group, 2 * group, 3 * group, 65 * group}) {
        for (const int64_t count : {1, 2, 3, 7, 15, 16, 17, 31, 33, 62, 63, 64}) {
          if (dim == 65 * group && count != 63) continue;
          for (const bool widen : {false, true}) {
            ExpectFactored(format, dim, count, widen, !widen, 1.0f);
            ExpectFactored(format, dim, count, widen, false, 0x1p-120f);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
  const std::vector<int64_t> all = hwy::SupportedAndGeneratedTargets();
  EXPECT_EQ(targets, std::count_if(all.begin(), all.end(), [](int64_t target) {
              return target == HWY_AVX2 || target == HWY_AVX3 || target == HWY_AVX3_DL;
            }));
}

TEST(AttentionPackedCodes, FieldOrderHasEveryChannelOnce) {
  for (const int bits : {4, 8}) {
    for (const int64_t lanes : {8, 16}) {
      for (const int chunks : {1, 2, 3, 4, 5}) {
        const int64_t dim = chunks * optimized::PackedChunk(bits);
        std::vector<int> seen(static_cast<size_t>(dim));
        std::vector<float> row(static_cast<size_t>(dim));
        for (int64_t at = 0; at < dim; ++at) {
          const int64_t channel = optimized::PackedChannel(bits, lanes, dim, at);
          ASSERT_GE(channel, 0);
          ASSERT_LT(channel, dim);
          ++seen[static_cast<size_t>(channel)];
          row[static_cast<size_t>(at)] = static_cast<float>(channel);
        }
        EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
        optimized::RestoreChannelOrder(bits, lanes, dim, row.data());
        for (int64_t c = 0; c < dim; ++c) ASSERT_EQ(row[static_cast<size_t>(c)], c);
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
