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
#include "optimized/formats/row_codec.h"
#include "tests/optimized/attention/horizontal_sum.h"
#include "tests/optimized/attention/stored_block.h"
#include "tests/optimized/attention/stored_sequence.h"
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
  const char* formats[] = {"f32",
                           "f16",
                           "bf16",
                           "f8e4m3fn",
                           "f8e5m2",
                           "q8_0",
                           "q4_0",
                           "q4_1",
                           "q5_0",
                           "q5_1",
                           "affine:8:g32:f32",
                           "affine:4:g64:f32",
                           "fp8:e4m3fn:token:f32",
                           "fp8:e5m2:token:f32",
                           "int8:token:f32",
                           "turboquant:1:g32:f32",
                           "turboquant:2:g32:s3:f32",
                           "turboquant:3:g64:f32",
                           "turboquant:4:g64:f32",
                           "turboquant:1.5:g64:hffff0000ffff0000:f32",
                           "turboquant:2.5:g64:ha53cc35affff0000:s3:f32",
                           "turboquant:3.5:g64:hffff0000ffff0000:f32"};
  EXPECT_EQ(kinds.size(), std::size(formats));
  EXPECT_EQ(kinds.size(), static_cast<size_t>(optimized::kPlainKinds));
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i].format = formats[i];
  return kinds;
}
#undef KVCHECK_NAMED_KIND

float DotOf(const float* q, const float* row, int64_t dim) {
  std::vector<float> lanes(16);
  for (int64_t i = 0; i < dim; ++i) {
    const float product = q[i] * row[i];
    lanes[static_cast<size_t>(i) % 16] += product;
  }
  return HorizontalSum(lanes);
}

void ExpectDefinition(const NamedKind& kind, int64_t dim, int64_t count, const std::string& what) {
  const AttentionKernels kernels = optimized::KernelsFor(false);
  StoredBlock block(kind.format, dim, count, static_cast<uint32_t>(dim * 100 + count));
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
      kernels.Of(rows.kind).dot[width == 1 ? 0 : 1](rows, {q, padded, nullptr, false, nullptr},
                                                    scores.data());
      std::vector<float> weights(scores.size()), rescale(static_cast<size_t>(width));
      for (float& weight : weights) weight = std::fabs(draw());
      for (float& factor : rescale) factor = std::fabs(draw());
      const std::vector<float> before(out, out + floats);
      kernels.Of(rows.kind).sum[width == 1 ? 0 : 1](rows, weights.data(), rescale.data(), out,
                                                    padded);
      for (int64_t h = 0; h < width; ++h) {
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(scores[static_cast<size_t>(h * kBlockTokens + i)],
                    DotOf(q + h * padded, &block.values[static_cast<size_t>(i * dim)], dim))
              << kind.name << " dim " << dim << " key " << i << " query " << h << what;
        }
        for (int64_t c = 0; c < dim; ++c) {
          float sum = 0;
          for (int64_t i = 0; i < count; ++i) {
            const float product = block.values[static_cast<size_t>(i * dim + c)] *
                                  weights[static_cast<size_t>(h * kBlockTokens + i)];
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
      const bool coded = !IsPlain(ParseKvFormat(WholeLine(kind.format)));
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

// A set is whole: no kind of row lacks a kernel that its arithmetic has, or has one of another.
TEST(AttentionKernels, AreAWholeSetOnEveryInstructionSet) {
  using optimized::CodeArithmetic;
  const auto has = [](const auto& widths) { return widths[0] != nullptr && widths[1] != nullptr; };
  const auto lacks = [](const auto& widths) {
    return widths[0] == nullptr && widths[1] == nullptr;
  };
  int factoring = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    for (const bool fused : {false, true}) {
      const AttentionKernels kernels = optimized::KernelsFor(fused);
      const bool factors = kernels.codes != CodeArithmetic::kDequantized;
      const std::string what = std::string(hwy::TargetName(target)) + (fused ? " fused" : "");
      factoring += factors ? 1 : 0;
      EXPECT_TRUE(fused || !factors) << what;
      EXPECT_EQ(factors, kernels.CanTranspose()) << what;
      EXPECT_EQ(factors, kernels.packed_lanes > 0) << what;
      EXPECT_TRUE(has(kernels.softmax)) << what;
      EXPECT_NE(kernels.widen_scales, nullptr) << what;
      for (int k = 0; k < optimized::kRowKinds; ++k) {
        const auto kind = static_cast<RowKind>(k);
        const optimized::RowKernels& row = kernels.Of(kind);
        const bool plain = k < optimized::kPlainKinds;
        const bool widened = kind == RowKind::kFactoredWidened;
        const bool fixed = kind > RowKind::kFactored4 && !widened;  // in fixed point alone
        const bool stored = plain || (fixed ? kernels.IsFixedPoint() : factors && !widened);
        const bool transposed = plain ? factors && kind == RowKind::kFloat32 : stored;
        EXPECT_TRUE(stored ? has(row.dot) : lacks(row.dot)) << what << k;
        EXPECT_TRUE(stored || (factors && widened) ? has(row.sum) : lacks(row.sum)) << what << k;
        EXPECT_EQ(row.widen != nullptr, stored) << what << k;
        EXPECT_EQ(row.transpose != nullptr, transposed) << what << k;
        EXPECT_EQ(row.transposed_dot != nullptr, transposed) << what << k;
      }
    }
  }
#if HWY_ARCH_X86
  EXPECT_TRUE(factoring > 0 || (hwy::SupportedTargets() & HWY_AVX2) == 0);
#endif
}

// In their basis rows are read where they are stored: those of a rotation as the rows inside it.
TEST(AttentionKernels, ReadRotatedRowsAsTheyAreStored) {
  struct Rotated {
    const char* format;
    RowKind kind;
  };
  const AttentionKernels kernels = optimized::KernelsFor(true);
  for (const Rotated& rotated :
       {Rotated{"hadamard:64:q8_0", RowKind::kBlock8},
        Rotated{"hadamard:2:iq4_nl", RowKind::kBlock4},
        Rotated{"hadamard:64:q5_1", RowKind::kBlock5Minimum},
        Rotated{"hadamard:32:affine:4:g32:f16", RowKind::kCode4},
        Rotated{"hadamard:64:affine:8:g64:bf16", RowKind::kCode8},
        Rotated{"hadamard:64:fp8:e5m2:inline:f32", RowKind::kScaledE5M2},
        Rotated{"hadamard:64:uniform:4:inline:f32", RowKind::kCode4},
        Rotated{"turboquant:1:g64:f16", RowKind::kCentroid1},
        Rotated{"turboquant:4:g64:f16", RowKind::kCentroid4},
        Rotated{"turboquant:1.5:g64:hffff0000ffff0000:f32", RowKind::kHalves1And2},
        Rotated{"turboquant:3.5:g64:hffff0000ffff0000:f32", RowKind::kHalves3And4}}) {
    StoredBlock block(rotated.format, 128, 5, 1);
    const BlockRows& rows = block.Take(kernels, false);
    EXPECT_EQ(rows.kind, rotated.kind) << rotated.format;
    EXPECT_EQ(rows.high != nullptr, optimized::HasHalves(rotated.kind)) << rotated.format;
    const auto row_bytes = static_cast<int64_t>(block.codes.size()) / block.count;
    for (int64_t i = 0; i < block.count; ++i) {
      EXPECT_EQ(rows.rows[i], block.codes.data() + i * row_bytes) << rotated.format;
      if (rows.high == nullptr) continue;
      // 64 codes of the low half's bits before.
      const int64_t bits = rotated.kind == RowKind::kHalves1And2 ? 1 : 3;
      EXPECT_EQ(rows.high->rows[i], rows.rows[i] + 64 * bits / 8) << rotated.format;
    }
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
        stage.Start(PlainFormat{dtype}, kDim, {});
        const optimized::StoredHeads heads = {
            codes.data() + first * size, nullptr, nullptr, 0, 0, 0, 0};
        const int64_t column = 0;
        stage.Take(heads, 0, &column, 1, true, optimized::BlockStage::As::kFloats, kernels);
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

// Scales of `count` tokens at any columns, that end where memory ends, and what they are.
class DrawnScales {
 public:
  DrawnScales(DType dtype, int64_t count, int64_t groups, int64_t tokens_apart, bool backwards)
      : dtype_(dtype), count_(count), groups_(groups) {
    const auto size = static_cast<int64_t>(SizeInBytes(dtype));
    const int64_t token = groups * size;
    const int64_t apart = tokens_apart * token;
    bytes_ = GuardedBytes((count - 1) * apart + token);
    std::mt19937 random(static_cast<uint32_t>(count * groups));
    optimized::RowCodec codec;
    codec.Start(PlainFormat{dtype}, DType::kFloat32, groups);
    values.resize(static_cast<size_t>(count * groups));
    for (int64_t i = 0; i < count; ++i) {
      std::byte* to = bytes_.data() + (backwards ? count - 1 - i : i) * apart;
      for (int64_t b = 0; b < token; ++b) {
        // The last byte of a number: no exponent of infinities.
        to[b] = static_cast<std::byte>(random() & (b % size == size - 1 ? 0xbf : 0xff));
      }
      codec.Decode({to, nullptr, nullptr, 0, 0}, 1, &values[static_cast<size_t>(i * groups)]);
    }
    first_ = backwards ? bytes_.data() + (count - 1) * apart : bytes_.data();
    stride_ = backwards ? -apart : apart;
  }
  optimized::StoredScales Together(const int64_t* column) const {
    return {dtype_, first_ - *column * stride_, stride_, column, true, count_, groups_};
  }
  optimized::StoredScales At(const std::vector<int64_t>& columns) const {
    return {dtype_, first_, stride_, columns.data(), false, count_, groups_};
  }

  std::vector<float> values;  // (count, groups)

 private:
  DType dtype_;
  int64_t count_, groups_;
  GuardedBytes bytes_;
  std::byte* first_;
  int64_t stride_;
};

void ExpectScales(const AttentionKernels& kernels, const optimized::StoredScales& stored,
                  const std::vector<float>& want, const std::vector<int64_t>& tokens) {
  const auto room = static_cast<size_t>(stored.groups * kBlockTokens);
  std::vector<float> by_token(room), out(room);
  kernels.widen_scales(stored, by_token.data(), out.data());
  for (int64_t i = 0; i < stored.count; ++i) {
    for (int64_t g = 0; g < stored.groups; ++g) {
      const int64_t from = tokens[static_cast<size_t>(i)] * stored.groups + g;
      ASSERT_EQ(std::bit_cast<uint32_t>(out[static_cast<size_t>(g * kBlockTokens + i)]),
                std::bit_cast<uint32_t>(want[static_cast<size_t>(from)]))
          << "token " << i << " of " << stored.count << " group " << g << " of " << stored.groups
          << " stride " << stored.stride;
    }
  }
}

TEST(AttentionKernels, WidenScalesOfTokensAnywhereOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    const AttentionKernels kernels = optimized::KernelsFor(false);
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const int64_t groups : {1, 2, 3, 4, 5, 8, 16}) {
        for (const int64_t count : {1, 2, 3, 15, 16, 17, 31, 48, 63, 64}) {
          std::vector<int64_t> in_order, shuffled, same(static_cast<size_t>(count), 0);
          for (int64_t i = 0; i < count; ++i) in_order.push_back(i);
          shuffled = in_order;
          std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(5));
          for (const int64_t apart : {1, 3}) {
            for (const bool backwards : {false, true}) {
              const DrawnScales drawn(dtype, count, groups, apart, backwards);
              const int64_t column = 7;
              ExpectScales(kernels, drawn.Together(&column), drawn.values, in_order);
              ExpectScales(kernels, drawn.At(shuffled), drawn.values, shuffled);
              auto one = drawn.Together(&same[0]);  // a stride of 0: one token for all
              one.stride = 0;
              ExpectScales(kernels, one, drawn.values, same);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
