// Generated attention inputs: pinned bits, finite in every type, and the trait of every regime
// measured on scores computed here in double.

#include "reference/data/attention_regime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

AttentionCase MakeCase(std::string_view regime, uint64_t seed = 2) {
  AttentionCase c;
  c.batch = 2;
  c.query_heads = 6;
  c.kv_heads = 2;
  c.query_len = 3;
  c.kv_len = 129;
  c.k_dim = 64;
  c.v_dim = 32;
  c.data.regime = std::string(regime);
  c.data.seed = seed;
  return c;
}

std::vector<double> Values(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

// Scores [row of q][key].
std::vector<std::vector<double>> Scores(const AttentionCase& c, const TensorMap& tensors) {
  const std::vector<double> q = Values(tensors.at("q"));
  const std::vector<double> k = Values(tensors.at("k_original"));
  const size_t dim = static_cast<size_t>(c.k_dim);
  const size_t keys = static_cast<size_t>(c.kv_len);
  const size_t rows_per_kv_head = static_cast<size_t>(c.query_heads / c.kv_heads * c.query_len);
  std::vector<std::vector<double>> scores(q.size() / dim, std::vector<double>(keys));
  for (size_t row = 0; row < scores.size(); ++row) {
    const size_t kv_head = row / rows_per_kv_head;
    for (size_t j = 0; j < keys; ++j) {
      double sum = 0;
      for (size_t i = 0; i < dim; ++i) sum += q[row * dim + i] * k[(kv_head * keys + j) * dim + i];
      scores[row][j] = sum * c.scale;
    }
  }
  return scores;
}

// The largest softmax weight of a row.
double LargestWeight(const std::vector<double>& scores) {
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - maximum);
  return 1 / sum;
}

uint64_t Hash(const TensorMap& tensors) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
  for (const auto& [name, tensor] : tensors) {
    for (const std::byte byte : tensor.bytes) {
      hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
    }
  }
  return hash;
}

TEST(AttentionRegime, GivesTheSameBitsOnEveryMachine) {
  const std::map<std::string, uint64_t> pinned = {
      {"gauss", 0x7d13f0aab968ad5eu},    {"outlier", 0xde0f9747dcb3ed94u},
      {"sink", 0x87b9b59125cfd75du},     {"same_sign", 0x741c55361440d9deu},
      {"huge", 0x1271ff136072dbaau},     {"constant", 0x5fd53af7d2e20961u},
      {"equal", 0xb2a9267ddc48ce1eu},    {"duplicated", 0xb4f4b220c17d3cffu},
      {"dominant", 0x8279e44b2b73774fu}, {"subnormal", 0xda3b69464f1fbaadu},
      {"large_v", 0xb411ec6ff7badc1fu},  {"tiny_p", 0x3be326e0d8022059u},
      {"zeros", 0x4345bd2d5099ad83u},    {"disabled_sinks", 0x3f0de106663821f7u},
  };
  for (const std::string_view regime : AttentionRegimes()) {
    AttentionCase c = MakeCase(regime);
    c.sinks = DType::kFloat32;
    c.alibi = true;
    c.mask.array = MaskArrayKind::kAdditive;
    const uint64_t hash = Hash(GenerateAttention(c));
    const auto want = pinned.find(std::string(regime));
    EXPECT_TRUE(want != pinned.end() && want->second == hash)
        << "{\"" << regime << "\", 0x" << std::hex << hash << "u},";
  }
}

TEST(AttentionRegime, IsFiniteInTheTypeOfQAndInTheRowTypes) {
  const KvFormat formats[] = {PlainFormat{DType::kFloat32}, PlainFormat{DType::kFloat16},
                              PlainFormat{DType::kFloat8E4M3FN}, PlainFormat{DType::kFloat8E5M2},
                              AffineFormat{4, 32, DType::kFloat16}};
  for (const std::string_view regime : AttentionRegimes()) {
    for (const DType q : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const KvFormat& format : formats) {
        AttentionCase c = MakeCase(regime);
        c.q = q;
        c.k = c.v = format;
        for (const auto& [name, tensor] : GenerateAttention(c)) {
          EXPECT_EQ(tensor.dtype, q);
          for (const double x : Values(tensor)) {
            const double stored = name == "q" ? x : RoundTo(RowDType(format), x);
            ASSERT_TRUE(std::isfinite(x) && std::isfinite(stored)) << regime << " " << name;
          }
        }
      }
    }
  }
}

TEST(AttentionRegime, GivesItsNamedScores) {
  const auto scores = [](std::string_view regime) {
    const AttentionCase c = MakeCase(regime);
    return Scores(c, GenerateAttention(c));
  };
  for (const auto& row : scores("sink")) {
    EXPECT_GT(row[0], *std::max_element(row.begin() + 1, row.end()));
    EXPECT_GT(LargestWeight(row), 0.5);
  }
  // The aligned key stands about 40 above the others: nothing else is left in f32.
  for (const auto& row : scores("dominant")) EXPECT_GT(LargestWeight(row), 1 - 0x1p-24);
  for (const auto& row : scores("equal")) {
    const auto [low, high] = std::minmax_element(row.begin(), row.end());
    // One channel of N(0, 1) data, at most 6 x 6, moves by one part in 128.
    EXPECT_LE(*high - *low, 36 * 0x1p-7 * 0.125);
    EXPECT_NE(*high, *low);
  }
  for (const auto& row : scores("duplicated")) EXPECT_EQ(row[0], row[32]);
  double largest = 0;
  for (const auto& row : scores("huge")) largest = std::max(largest, std::fabs(row[0]));
  EXPECT_GT(largest, 1e3);
  EXPECT_LT(largest, 1e5);
  for (const auto& row : scores("zeros")) EXPECT_EQ(row[0], 0.0);
  for (const auto& row : scores("tiny_p")) {
    // More than half of the weights are below the smallest subnormal of f16, 2^-24 = e^-16.6.
    const double maximum = *std::max_element(row.begin(), row.end());
    EXPECT_GT(std::count_if(row.begin(), row.end(), [&](double s) { return s < maximum - 16.7; }),
              static_cast<std::ptrdiff_t>(row.size() / 2));
  }
}

TEST(AttentionRegime, GivesItsNamedValues) {
  const auto values = [](std::string_view regime, KvFormat v) {
    AttentionCase c = MakeCase(regime);
    c.v = v;
    return Values(GenerateAttention(c).at("v_original"));
  };
  for (const double x : values("same_sign", PlainFormat{})) EXPECT_GE(x, 0.0);
  for (const double x : values("subnormal", PlainFormat{DType::kFloat16})) {
    EXPECT_LT(std::fabs(x), 0x1p-14);
  }
  for (const double x : values("large_v", PlainFormat{})) EXPECT_GT(std::fabs(x), 4.9e29);
  for (const double x : values("large_v", PlainFormat{DType::kFloat16})) {
    EXPECT_GT(std::fabs(x), 29000.0);
    EXPECT_LT(std::fabs(x), 59000.0);
  }
  const std::vector<double> constant = values("constant", PlainFormat{});
  // Each head has a row of its own; this is the first.
  constexpr size_t kHead = size_t{129} * 32;
  ASSERT_GE(constant.size(), kHead);
  for (size_t i = 0; i < kHead; ++i) EXPECT_EQ(constant[i], constant[i % 32]);
}

TEST(AttentionRegime, MaskLetsEveryRowSeeAKeyUnlessTheSeedIsOdd) {
  for (const uint64_t seed : {2u, 3u}) {
    for (const MaskArrayKind kind : {MaskArrayKind::kBoolean, MaskArrayKind::kAdditive}) {
      AttentionCase c = MakeCase("gauss", seed);
      c.mask.array = kind;
      c.mask.axes = MaskAxes::kBHLT;
      const Tensor mask = GenerateAttention(c).at("mask");
      const std::vector<double> values = Values(mask);
      const bool additive = kind == MaskArrayKind::kAdditive;
      double seen_in_all = 0;
      for (int64_t row = 0; row < mask.shape.RowCount(); ++row) {
        int64_t seen = 0;
        for (int64_t j = 0; j < 129; ++j) {
          const double x = values[static_cast<size_t>(row * 129 + j)];
          EXPECT_TRUE(additive ? x == -std::numeric_limits<double>::infinity() || std::fabs(x) <= 4
                               : x == 0 || x == 1);
          seen += (additive ? std::isfinite(x) : x == 1) ? 1 : 0;
        }
        EXPECT_EQ(seen == 0, seed == 3 && row % 7 == 3) << row;
        seen_in_all += static_cast<double>(seen);
      }
      if (seed == 3) continue;
      const double n = static_cast<double>(values.size());
      const double share = additive ? 0.8 : 0.6;
      // Six standard deviations, and one key per row that is seen in any case.
      EXPECT_NEAR(
          seen_in_all, share * n,
          6 * std::sqrt(n * share * (1 - share)) + static_cast<double>(mask.shape.RowCount()));
    }
  }
}

TEST(AttentionRegime, SlopesFollowThePublishedRule) {
  AttentionCase c = MakeCase("gauss");
  c.alibi = true;
  c.query_heads = 8;
  std::vector<double> slopes = Values(GenerateAttention(c).at("alibi_slopes"));
  for (size_t h = 0; h < 8; ++h) EXPECT_EQ(slopes[h], std::ldexp(1.0, -static_cast<int>(h) - 1));
  c.query_heads = 6;  // 4 heads, then heads 0 and 2 of 8
  slopes = Values(GenerateAttention(c).at("alibi_slopes"));
  EXPECT_EQ(slopes, (std::vector<double>{0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3}));
}

TEST(AttentionRegime, ListsTheRegimesWhenOneIsUnknown) {
  try {
    GenerateAttention(MakeCase("cauchy"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIllegalCase);
    EXPECT_NE(error.message().find("duplicated"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvcheck
