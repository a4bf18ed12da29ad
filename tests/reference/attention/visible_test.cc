// Visible sets against a definition of their own, written key by key from the text of mask.h.

#include "reference/attention/visible.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/attention/row_reference.h"
#include "reference/data/generator.h"
#include "tests/reference/attention/judge_run.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

struct Term {
  bool visible = true;
  double bias = 0;
};

// Whether key j is visible to the query, and its bias, term by term.
Term Brute(const AttentionCase& c, const TensorMap& inputs, int64_t b, int64_t h, int64_t l,
           int64_t j) {
  Term term;
  const int64_t shift = c.kv_len - c.query_len;
  const bool top_left = c.mask.causal == CausalAlignment::kTopLeft;
  const int64_t position = top_left ? l : l + shift;
  if (c.mask.causal != CausalAlignment::kNone) term.visible &= !(j > position);
  if (c.mask.window) term.visible &= position - j < *c.mask.window;
  if (!c.mask.left_padding.empty()) {
    term.visible &= j >= c.mask.left_padding[static_cast<size_t>(b)];
  }
  if (c.alibi) {
    const double slope = Decoded(Get(inputs, "alibi_slopes"))[static_cast<size_t>(h)];
    term.bias -= slope * static_cast<double>(std::abs(position - j));
  }
  if (c.mask.array != MaskArrayKind::kNone) {
    const Tensor& mask = Get(inputs, "mask");
    // Right-aligned broadcasting of the mask's own extents over (B, Hq, L, T).
    std::vector<int64_t> index = {b, h, l, j};
    const size_t rank = mask.shape.axes.size();
    size_t flat = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
      const int64_t extent = mask.shape.axes[axis].extent;
      const int64_t at = extent == 1 ? 0 : index[4 - rank + axis];
      flat = flat * static_cast<size_t>(extent) + static_cast<size_t>(at);
    }
    const double value = Decoded(mask)[flat];
    if (c.mask.array == MaskArrayKind::kBoolean) {
      term.visible &= value != 0;
    } else if (value == -kInfinity) {
      term.visible = false;
    } else {
      term.bias += value;
    }
  }
  return term;
}

void ExpectBrute(const AttentionCase& c) {
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const MaskReader reader(c, {}, inputs);
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.query_heads; ++h) {
      for (int64_t l = 0; l < c.query_len; ++l) {
        const VisibleSet set = reader.Visible({b, h, l});
        std::vector<int32_t> keys;
        std::vector<double> bias;
        for (int64_t j = 0; j < c.kv_len; ++j) {
          const Term term = Brute(c, inputs, b, h, l, j);
          if (!term.visible) continue;
          keys.push_back(static_cast<int32_t>(j));
          bias.push_back(term.bias);
        }
        const int64_t position =
            c.mask.causal == CausalAlignment::kTopLeft ? l : c.kv_len - c.query_len + l;
        const int64_t padding =
            c.mask.left_padding.empty() ? 0 : c.mask.left_padding[static_cast<size_t>(b)];
        const QueryKind kind = position >= 0 && position < padding ? QueryKind::kPadding
                               : keys.empty()                      ? QueryKind::kFullyMasked
                                                                   : QueryKind::kOrdinary;
        ASSERT_EQ(set.keys, keys) << Print(Case(c)) << " b " << b << " h " << h << " l " << l;
        ASSERT_EQ(set.kind, kind) << Print(Case(c)) << " b " << b << " h " << h << " l " << l;
        if (!set.bias.empty()) {
          ASSERT_EQ(set.bias, bias) << Print(Case(c));
        } else {
          for (double x : bias) ASSERT_EQ(x, 0);
        }
        ASSERT_TRUE(set.hidden_keys.empty());
      }
    }
  }
}

AttentionCase Base(int64_t query_len, int64_t kv_len) {
  AttentionCase c;
  c.batch = 2, c.query_heads = 3, c.kv_heads = 1, c.query_len = query_len, c.kv_len = kv_len;
  c.k_dim = c.v_dim = 1;
  c.data = {.regime = "gauss", .seed = 7, .file_hash = ""};  // odd: some rows see nothing
  return c;
}

TEST(VisibleSet, EqualsTheDefinitionForEveryCombinationOfTerms) {
  int cases = 0;
  for (const auto& [query_len, kv_len] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 5}, {4, 4}, {5, 4}, {4, 7}, {5, 1}}) {
    for (CausalAlignment causal :
         {CausalAlignment::kNone, CausalAlignment::kBottomRight, CausalAlignment::kTopLeft}) {
      for (int64_t window : {0, 1, 2, 4, 9}) {
        for (int64_t padding : {-1, 0, 1, 2}) {
          for (int array = 0; array < 11; ++array) {
            AttentionCase c = Base(query_len, kv_len);
            c.mask.causal = causal;
            if (window > 0) c.mask.window = window;
            if (padding >= 0) c.mask.left_padding = {std::min(padding, kv_len), 0};
            c.alibi = (array + window) % 3 == 1;
            if (array > 0) {
              c.mask.array = array <= 5 ? MaskArrayKind::kBoolean : MaskArrayKind::kAdditive;
              c.mask.axes = std::vector<MaskAxes>{
                  MaskAxes::kT, MaskAxes::kLT, MaskAxes::kB1LT, MaskAxes::kBHLT,
                  MaskAxes::kB11T}[static_cast<size_t>((array - 1) % 5)];
            }
            ExpectBrute(c);
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, 6 * 3 * 5 * 4 * 11);
}

RowKind AskOf(const AttentionCase& c, const Profile& profile, const TensorMap& inputs,
              const QueryIndex& query, OwnedQuestion* owned) {
  const HeadData head = LoadHead(c, profile, inputs, query.batch, 0, {});
  const Arithmetic arithmetic = Resolve({}, profile, c);
  const std::vector<double> q(static_cast<size_t>(c.k_dim), 1.0);
  RowContext context;
  context.c = &c, context.arithmetic = &arithmetic, context.profile = profile;
  context.head = &head, context.q = q;
  return MakeQuestion(context, MaskReader(c, profile, inputs).Visible(query), owned);
}

TEST(FullyMaskedRow, FollowsTheProfile) {
  AttentionCase c = Base(3, 2);  // bottom right: query 0 stands before the first key
  c.mask.causal = CausalAlignment::kBottomRight;
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const std::vector<std::pair<MaskedRow, RowKind>> kinds = {
      {MaskedRow::kZero, RowKind::kZero},
      {MaskedRow::kNan, RowKind::kNan},
      {MaskedRow::kAny, RowKind::kUnconstrained},
      {MaskedRow::kMean, RowKind::kEvaluate}};
  for (const auto& [masked_row, kind] : kinds) {
    Profile profile;
    profile.masked_row = masked_row;
    OwnedQuestion owned;
    EXPECT_EQ(AskOf(c, profile, inputs, {0, 0, 0}, &owned), kind);
    EXPECT_EQ(AskOf(c, profile, inputs, {0, 0, 1}, &owned), RowKind::kEvaluate);
    if (kind != RowKind::kEvaluate) continue;
    const AttentionSource source(c, profile, {}, inputs);
    const std::vector<double> v = Decoded(Get(inputs, "v"));
    const ExpectedTile tile = source.Tiles(0, {})[0];
    const double mean = (v[0] + v[1]) / 2;  // one rounding, of the sum
    EXPECT_NEAR(tile.value[0], mean, tile.reference_bound[0] + 0x1p-53 * std::fabs(mean));
  }
}

TEST(FiniteMaskValue, LeaksWhereItIsNotLowAgainstTheScores) {
  AttentionCase c = Base(2, 2);
  c.batch = 1, c.query_heads = 1;
  c.mask.causal = CausalAlignment::kTopLeft;
  TensorMap inputs = GenerateInputs(Case(c), {});
  const std::vector<double> ones = {1, 1}, k = {2, 2}, v = {1, 3};
  EncodeFrom(ones, DType::kFloat32, inputs["q"].bytes.data());
  EncodeFrom(k, DType::kFloat32, inputs["k"].bytes.data());
  EncodeFrom(v, DType::kFloat32, inputs["v"].bytes.data());
  Profile profile;
  profile.mask_value = MaskValueKind::kNumber;
  profile.masked_row = MaskedRow::kMean;
  profile.mask_number = -3;
  c.scale = 1;
  // Query 0 sees key 0 with score 2; key 1 stays with score -3.
  const double leaked = (1 + 3 * std::exp(-5.0)) / (1 + std::exp(-5.0));
  const ExpectedTile tile = AttentionSource(c, profile, {}, inputs).Tiles(0, {})[0];
  // exp within an ulp in two places, a product, two sums and a quotient: eight half ulps.
  EXPECT_NEAR(tile.value[0], leaked, tile.reference_bound[0] + 8 * 0x1p-53 * leaked);
  profile.mask_number = -1e9;
  EXPECT_EQ(AttentionSource(c, profile, {}, inputs).Tiles(0, {})[0].value[0], 1);
  profile.mask_value = MaskValueKind::kLowest;
  OwnedQuestion owned;
  AskOf(c, profile, inputs, {0, 0, 0}, &owned);
  EXPECT_EQ(owned.keys, std::vector<int32_t>{0}) << "a key that vanishes costs no rounding";
}

TEST(FiniteMaskValue, DoesNotReplaceMinusInfinityOfAnAdditiveMask) {
  AttentionCase c = Base(1, 3);
  c.batch = 1, c.query_heads = 1;
  c.mask.array = MaskArrayKind::kAdditive;
  c.mask.axes = MaskAxes::kLT;
  c.mask.left_padding = {1};
  TensorMap inputs = GenerateInputs(Case(c), {});
  EncodeFrom(std::vector<double>{0, -kInfinity, 0.5}, DType::kFloat32, inputs["mask"].bytes.data());
  Profile profile;
  profile.mask_value = MaskValueKind::kNumber;
  profile.mask_number = -1;
  const VisibleSet set = MaskReader(c, profile, inputs).Visible({0, 0, 0});
  EXPECT_EQ(set.keys, std::vector<int32_t>{2});
  EXPECT_EQ(set.hidden_keys, std::vector<int32_t>{0});
  profile = {};
  profile.maximum_over_all = true;
  const VisibleSet all = MaskReader(c, profile, inputs).Visible({0, 0, 0});
  EXPECT_EQ(all.masked_keys, std::vector<int32_t>{0});
}

}  // namespace
}  // namespace kvcheck
