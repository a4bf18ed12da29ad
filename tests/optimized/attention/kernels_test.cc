// Every kernel of the table against its definition written out: 16 lanes, products that are
// rounded, the same bits on every instruction set; and every code of the narrow types.

#include "optimized/attention/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "optimized/attention/block_stage.h"
#include "optimized/attention/planes.h"
#include "optimized/formats/row_codec.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

using optimized::AttentionKernels;
using optimized::BlockRows;
using optimized::kBlockTokens;
using optimized::kQuad;
using optimized::RowKind;

struct NamedKind {
  RowKind kind;
  const char* name;
  std::string format;
};

#define KVCHECK_NAMED_KIND(name, rows) {RowKind::name, #name, ""},
std::vector<NamedKind> Kinds() {
  std::vector<NamedKind> kinds = {KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_NAMED_KIND)};
  const char* formats[] = {
      "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "affine:8:g32:f32", "affine:4:g64:f32"};
  EXPECT_EQ(kinds.size(), std::size(formats));
  EXPECT_EQ(kinds.size(), static_cast<size_t>(optimized::kPlainKinds));
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i].format = formats[i];
  return kinds;
}
#undef KVCHECK_NAMED_KIND

// A block of one format with the values that it stands for: codes by two roundings.
struct Block {
  Block(const std::string& text, int64_t dim, int64_t count, uint32_t seed, bool planes = false)
      : format(ParseKvFormat(WholeLine(text))), dim(dim), count(count) {
    optimized::RowCodec codec;
    codec.Start(format, DType::kFloat32, dim);
    const optimized::RowBytes bytes = codec.bytes();
    std::mt19937 random(seed);
    std::vector<float> x(static_cast<size_t>(count * dim));
    for (float& value : x)
      value = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -31);
    codes.resize(static_cast<size_t>(count * bytes.codes));
    scales.resize(static_cast<size_t>(count * bytes.scales));
    biases.resize(scales.size());
    codec.Encode(reinterpret_cast<const std::byte*>(x.data()), dim * 4, count,
                 {codes.data(), scales.data(), biases.data(), bytes.codes, bytes.scales});
    values.resize(x.size());
    codec.Decode({codes.data(), scales.data(), biases.data(), bytes.codes, bytes.scales}, count,
                 values.data());
    stage.Start(format, dim, planes);
    heads = {codes.data(), scales.data(), biases.data(), bytes.codes, 0, bytes.scales, 0};
    for (int64_t i = 0; i < count; ++i) columns.push_back(i);
  }
  BlockRows& Take(const AttentionKernels& kernels, bool widen) {
    stage.Take(heads, 0, columns.data(), count, true, widen, kernels, {});
    return stage.rows();
  }

  KvFormat format;
  int64_t dim, count;
  std::vector<std::byte> codes, scales, biases;
  std::vector<float> values;
  optimized::BlockStage stage;
  optimized::StoredHeads heads;
  std::vector<int64_t> columns;
};

float DotOf(const float* q, const float* row, int64_t dim) {
  float lanes[16] = {};
  for (int64_t i = 0; i < dim; ++i) {
    const float product = q[i] * row[i];
    lanes[i % 16] += product;
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

void ExpectDefinition(const NamedKind& kind, int64_t dim, int64_t count, const std::string& what) {
  const AttentionKernels kernels = optimized::KernelsFor(false);
  Block block(kind.format, dim, count, static_cast<uint32_t>(dim * 100 + count));
  const int64_t padded = optimized::PaddedDim(dim);
  for (const bool widen : {false, true}) {
    const BlockRows& rows = block.Take(kernels, widen);
    if (!widen) {
      ASSERT_EQ(rows.kind, kind.kind) << kind.name;
    } else {
      ASSERT_EQ(rows.kind, RowKind::kFloat32);
    }
    for (const int64_t width : {int64_t{1}, kQuad}) {
      const auto floats = static_cast<size_t>(width * padded);
      std::vector<float> memory(2 * floats + 16);
      void* start = memory.data();
      size_t room = memory.size() * sizeof(float);
      auto* q = static_cast<float*>(std::align(64, 2 * floats * sizeof(float), start, room));
      float* out = q + floats;
      std::mt19937 random(7);
      const auto draw = [&] {
        return std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -31);
      };
      for (int64_t h = 0; h < width; ++h) {
        for (int64_t i = 0; i < padded; ++i) {
          q[h * padded + i] = i < dim ? draw() : 0.0f;
          out[h * padded + i] = i < dim ? draw() : 0.0f;
        }
      }
      std::vector<float> scores(static_cast<size_t>(kBlockTokens * width), -1.0f);
      kernels.dot[static_cast<int>(rows.kind)][width == 1 ? 0 : 1](
          rows, {q, padded, nullptr, false}, scores.data());
      std::vector<float> weights(scores.size()), rescale(static_cast<size_t>(width));
      for (float& weight : weights) weight = std::fabs(draw());
      for (float& factor : rescale) factor = std::fabs(draw());
      const std::vector<float> before(out, out + floats);
      kernels.sum[static_cast<int>(rows.kind)][width == 1 ? 0 : 1](rows, weights.data(),
                                                                   rescale.data(), out, padded);
      for (int64_t h = 0; h < width; ++h) {
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(scores[static_cast<size_t>(i * width + h)],
                    DotOf(q + h * padded, &block.values[static_cast<size_t>(i * dim)], dim))
              << kind.name << " dim " << dim << " key " << i << " query " << h << what;
        }
        for (int64_t c = 0; c < dim; ++c) {
          float sum = 0;
          for (int64_t i = 0; i < count; ++i) {
            const float product = block.values[static_cast<size_t>(i * dim + c)] *
                                  weights[static_cast<size_t>(i * width + h)];
            sum += product;
          }
          const float kept =
              before[static_cast<size_t>(h * padded + c)] * rescale[static_cast<size_t>(h)];
          ASSERT_EQ(out[h * padded + c], kept + sum)
              << kind.name << " dim " << dim << " channel " << c << " query " << h << what;
        }
      }
    }
  }
}

TEST(AttentionKernels, AreTheirDefinitionOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    const std::string what = std::string(" ") + hwy::TargetName(target);
    for (const NamedKind& kind : Kinds()) {
      const bool coded = kind.format.starts_with("affine");
      const std::vector<int64_t> dims = coded ? std::vector<int64_t>{64, 128, 192}
                                              : std::vector<int64_t>{1, 2, 15, 16, 17, 31, 33, 129};
      for (const int64_t dim : dims) {
        for (const int64_t count : {1, 2, 3, 7, 63, 64}) {
          ExpectDefinition(kind, dim, count, what);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Codes, scales and biases of a block, and what the kernels of planes compute of them.
class PlaneDefinition {
 public:
  explicit PlaneDefinition(const Block& block)
      : format_(std::get<AffineFormat>(block.format)), dim_(block.dim), count_(block.count) {
    const int bits = format_.bits;
    codes_.resize(static_cast<size_t>(dim_ * count_));
    for (size_t i = 0; i < codes_.size(); ++i) {
      int code = 0;
      for (int b = 0; b < bits; ++b) {
        const size_t at = i * static_cast<size_t>(bits) + static_cast<size_t>(b);
        code |= (static_cast<int>(block.codes[at / 8]) >> at % 8 & 1) << b;
      }
      codes_[i] = static_cast<float>(code);
    }
    scales_.resize(static_cast<size_t>(groups() * count_));
    biases_.resize(scales_.size());
    std::memcpy(scales_.data(), block.scales.data(), scales_.size() * sizeof(float));
    std::memcpy(biases_.data(), block.biases.data(), biases_.size() * sizeof(float));
  }
  int64_t groups() const { return dim_ / format_.group_size; }

  float Dot(const float* q, int64_t key) const {
    float score = 0;
    for (int64_t g = 0; g < groups(); ++g) {
      std::vector<float> group(q + g * format_.group_size, q + (g + 1) * format_.group_size);
      std::vector<float> lanes(8);
      for (size_t i = 0; i < group.size(); ++i) lanes[i % 8] += group[i];
      const float bias = Get(biases_, key, g);
      score = g == 0 ? bias * AddUp(lanes) : std::fma(bias, AddUp(lanes), score);
    }
    for (int64_t g = 0; g < groups(); ++g) {
      std::vector<float> lanes(8);
      for (int64_t at = g * format_.group_size; at < (g + 1) * format_.group_size; ++at) {
        const int64_t channel = optimized::PlaneChannel(format_.bits, at);
        float& lane = lanes[static_cast<size_t>(at % 8)];
        lane = std::fma(Code(key, channel), q[channel], lane);
      }
      score = std::fma(AddUp(lanes), Get(scales_, key, g), score);
    }
    return score;
  }
  // weights: of key i at i * stride.
  float Sum(const float* weights, int64_t stride, int64_t channel, float kept) const {
    const int64_t g = channel / format_.group_size;
    std::vector<float> biases(8);
    float codes = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const float p = weights[i * stride];
      float& bias = biases[static_cast<size_t>(i % 8)];
      bias = std::fma(p, Get(biases_, i, g), bias);
      const float weight = p * Get(scales_, i, g);
      codes = std::fma(Code(i, channel), weight, codes);
    }
    return kept + (codes + AddUp(biases));
  }

 private:
  static float AddUp(std::vector<float> lanes) {
    for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
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

// small: what is multiplied by it makes kernels shift codes down.
void ExpectPlanes(const std::string& format, int64_t dim, int64_t count, bool widen, bool in_place,
                  float small) {
  const AttentionKernels kernels = optimized::KernelsFor(true);
  Block block(format, dim, count, static_cast<uint32_t>(dim * 100 + count), true);
  const auto& affine = std::get<AffineFormat>(block.format);
  ASSERT_TRUE(optimized::HavePlanes(affine, dim));
  const PlaneDefinition definition(block);
  const BlockRows& rows = block.Take(kernels, widen);
  ASSERT_EQ(rows.kind, widen              ? RowKind::kPlaneFloats
                       : affine.bits == 4 ? RowKind::kPlanes4
                                          : RowKind::kPlanes8);
  std::mt19937 random(7);
  const auto draw = [&] {
    return std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -31);
  };
  std::vector<float> q(static_cast<size_t>(kQuad * dim));
  for (float& value : q) value = draw() * small;
  ASSERT_EQ(optimized::FitPlanes(q.data(), kQuad * dim), small == 1);
  const auto quad_floats = static_cast<size_t>(optimized::PlaneQuadFloats(dim, affine.group_size));
  const auto out_floats = static_cast<size_t>(kQuad * dim);
  std::vector<float> memory(quad_floats + out_floats + 16);
  void* start = memory.data();
  size_t room = memory.size() * sizeof(float);
  auto* quad =
      static_cast<float*>(std::align(64, (quad_floats + out_floats) * sizeof(float), start, room));
  float* out = quad + quad_floats;
  for (int64_t h = 0; h < kQuad; ++h) {
    optimized::ArrangeQuery(affine, q.data() + h * dim, dim, in_place, h, quad);
  }
  for (const int64_t width : {int64_t{1}, kQuad}) {
    const int wide = width == 1 ? 0 : 1;
    for (int64_t row = 0; row < kQuad; row += width) {
      const std::string what = format + " dim " + std::to_string(dim) + " width " +
                               std::to_string(width) + " row " + std::to_string(row);
      std::vector<float> scores(static_cast<size_t>(kBlockTokens * width));
      kernels.dot[static_cast<int>(rows.kind)][wide](
          rows, {quad + row * 8, 0, quad + kQuad * dim + row, in_place}, scores.data());
      std::vector<float> weights(scores.size()), rescale(static_cast<size_t>(width));
      for (float& weight : weights) weight = std::fabs(draw()) * small;
      weights[weights.size() / 2] = 0;
      for (float& factor : rescale) factor = std::fabs(draw());
      std::vector<float> before(static_cast<size_t>(width * dim));
      for (float& value : before) value = draw();
      std::copy(before.begin(), before.end(), out);
      kernels.sum[static_cast<int>(rows.kind)][wide](rows, weights.data(), rescale.data(), out,
                                                     dim);
      for (int64_t h = 0; h < width; ++h) {
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(scores[static_cast<size_t>(i * width + h)],
                    definition.Dot(&q[static_cast<size_t>((row + h) * dim)], i))
              << what << " key " << i;
        }
        for (int64_t at = 0; at < dim; ++at) {
          const float kept =
              before[static_cast<size_t>(h * dim + at)] * rescale[static_cast<size_t>(h)];
          ASSERT_EQ(out[h * dim + at],
                    definition.Sum(weights.data() + h, width,
                                   optimized::PlaneChannel(affine.bits, at), kept))
              << what << " place " << at;
        }
      }
    }
  }
}

TEST(AttentionKernels, SumPlanesOfCodesAsDefinedWhereverTheCodesStand) {
  int targets = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    if (!optimized::KernelsFor(true).planes) continue;
    ++targets;
    for (const char* format : {"affine:8:g32:f32", "affine:8:g64:f32", "affine:8:g128:f32",
                               "affine:4:g64:f32", "affine:4:g128:f32", "affine:3:g64:f32"}) {
      const int64_t group = std::get<AffineFormat>(ParseKvFormat(WholeLine(format))).group_size;
      for (const int64_t dim : {group, 3 * group}) {
        for (const int64_t count : {1, 2, 3, 7, 62, 63, 64}) {
          for (const bool widen : {false, true}) {
            ExpectPlanes(format, dim, count, widen, !widen, 1.0f);
            ExpectPlanes(format, dim, count, widen, false, 0x1p-120f);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
  const std::vector<int64_t> all = hwy::SupportedAndGeneratedTargets();
  EXPECT_EQ(targets, std::count(all.begin(), all.end(), int64_t{HWY_AVX2}));
}

TEST(AttentionKernels, PlanesOfCodesNameEveryChannelOnce) {
  for (const int bits : {4, 8}) {
    const int64_t dim = 2 * optimized::PlaneChunk(bits);
    std::vector<int> seen(static_cast<size_t>(dim));
    std::vector<float> row(static_cast<size_t>(dim));
    for (int64_t at = 0; at < dim; ++at) {
      const int64_t channel = optimized::PlaneChannel(bits, at);
      ++seen[static_cast<size_t>(channel)];
      row[static_cast<size_t>(at)] = static_cast<float>(channel);
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    optimized::RestoreChannels(bits, dim, row.data());
    for (int64_t c = 0; c < dim; ++c) EXPECT_EQ(row[static_cast<size_t>(c)], c);
  }
}

TEST(AttentionKernels, UnpackEveryWidthOfCodes) {
  for (const int bits : {2, 3, 5, 6}) {
    for (const int64_t dim : {32, 64, 128, 160}) {
      std::vector<uint8_t> codes(static_cast<size_t>(dim));
      std::mt19937 random(static_cast<uint32_t>(bits));
      const auto bytes = static_cast<size_t>(dim * bits / 8);
      auto packed = std::make_unique<std::byte[]>(bytes);  // ends where it ends
      for (size_t i = 0; i < codes.size(); ++i) {
        codes[i] = static_cast<uint8_t>(random() % (1u << bits));
        for (int b = 0; b < bits; ++b) {
          const size_t at = i * static_cast<size_t>(bits) + static_cast<size_t>(b);
          if ((codes[i] >> b & 1) != 0) packed[at / 8] |= static_cast<std::byte>(1 << at % 8);
        }
      }
      std::vector<std::byte> out(codes.size());
      const std::byte* row = packed.get();
      optimized::UnpackCodes(bits, &row, 1, dim, out.data());
      for (size_t i = 0; i < codes.size(); ++i) {
        ASSERT_EQ(static_cast<uint8_t>(out[i]), codes[i]) << bits << " bits, channel " << i;
      }
    }
  }
}

TEST(AttentionKernels, ReadEveryCodeOfTheNarrowTypesOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    const AttentionKernels kernels = optimized::KernelsFor(false);
    for (const char* text : {"f16", "bf16", "f8e4m3fn", "f8e5m2"}) {
      const DType dtype = std::get<PlainFormat>(ParseKvFormat(WholeLine(text))).dtype;
      const auto size = static_cast<int64_t>(SizeInBytes(dtype));
      const int64_t count = size == 1 ? 256 : 65536;
      std::vector<std::byte> codes(static_cast<size_t>(count * size));
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(&codes[static_cast<size_t>(i * size)], &i, static_cast<size_t>(size));
      optimized::RowCodec codec;
      codec.Start(PlainFormat{dtype}, DType::kFloat32, count);
      std::vector<float> want(static_cast<size_t>(count));
      codec.Decode({codes.data(), nullptr, nullptr, 0, 0}, 1, want.data());
      constexpr int64_t kDim = 256;
      for (int64_t first = 0; first < count; first += kDim) {
        optimized::BlockStage stage;
        stage.Start(PlainFormat{dtype}, kDim, false);
        const optimized::StoredHeads heads = {
            codes.data() + first * size, nullptr, nullptr, 0, 0, 0, 0};
        const int64_t column = 0;
        stage.Take(heads, 0, &column, 1, true, true, kernels, {});
        float got[kDim];
        std::memcpy(got, stage.rows().rows[0], sizeof(got));
        for (int64_t i = 0; i < kDim; ++i) {
          const float expected = want[static_cast<size_t>(first + i)];
          const bool same = std::isnan(expected) ? std::isnan(got[i])
                                                 : std::bit_cast<uint32_t>(got[i]) ==
                                                       std::bit_cast<uint32_t>(expected);
          ASSERT_TRUE(same) << text << " code " << first + i << " " << hwy::TargetName(target);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
