// The plan's words about scores against data: q.k, its constant, the softcap, the bias.
//
// How an error of a score is seen. Two keys: key 0 has the score S = 1024, key 1 weighs just so
// much that the stored log of the sum of exponentials rounds down by nearly half a spacing, 1024
// 2^-24. Then lse = 1024, which is off by the error of the score and by that rounding, against a
// bound of as many roundings and, beside it, some 2^-10 of one for exp and the denominator.
//
// Shown by argument, since no data can:
//  * fma (of q.k and of P.V). SumDepth counts a rounding of the product in both cases: the first
//    product of a fused chain is rounded where it meets zero. So the bound does not depend on the
//    field; what it says is tested on the bits (EntersProductsAsStated).
//  * tanh_error. Let z = x / cap, and count in units of 2^-24 |s|. The kernel rounds x / cap (d),
//    tanh (t), the product with the cap (p), and the cap itself (c), whose effect on the argument
//    has the other sign. With sigma = 2 z / sinh(2 z) <= 1, the elasticity of tanh, the error is at
//    most sigma d + t + p + (1 - sigma) c <= 3. The bound counts the constant twice, in argument
//    and product: without tanh_error it still is 2 min(z, 1/2) / tanh z + 2 >= 3. So the last unit
//    is always covered; the field is tested on the tanh of the platform.
//  * bias_roundings. E_j gets (1 + c_b) 2^-24 |b_j| and 2^-24 |s_j|, while a bias rounded c_b times
//    errs by c_b 2^-24 |b_j| and the sum by 2^-24 |s_j|: one unit of |b_j| is always to spare, and
//    no data break c_b - 1. (RoundsTheBias: that there is a rounding.)
//  * scores=f32, p=f32, partial=f32: a narrower type widens the bound; a wider one, f64, changes
//    nothing, since what op rounds is counted with op. (TypesThatAddNothing)
//  * prescale=none, exp=exp, lazy_rescale=0, p_normalised=no, normalise=divide, flush=no: there is
//    no tighter value. That they are no tighter than the code is the same as that it passes.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "optimized/attention/kernels.h"
#include "reference/numerics/exp.h"
#include "tests/optimized/attention/plan_adversary.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

constexpr float kScore = 1024;
// log(1 + w) just below half a spacing at 1024.
const float kGap = static_cast<float>(-std::log(std::expm1(kScore * kHalfUlp * (1 - 0x1p-9))));
// What is lost beside `sum`, where sum is a power of two.
float LostBeside(float sum) { return sum * static_cast<float>(kHalfUlp * (1 - 0x1p-10)); }

struct Product {
  float q, k;
};
// A product just less than half a spacing above `value`, a number not far above a power of two.
Product RoundsDownTo(float value) {
  const auto target = static_cast<double>(value);
  const double spacing = std::ldexp(1.0, std::ilogb(target) - 23);
  for (int i = 0; i < 1 << 20; ++i) {
    const float q = 1 + static_cast<float>(i) * 0x1p-20f;
    const auto k = static_cast<float>((target + 0.49 * spacing) / static_cast<double>(q));
    const double lost = (static_cast<double>(q) * static_cast<double>(k) - target) / spacing;
    if (lost > 0.48 && lost < 0.4999) return {q, k};
  }
  ADD_FAILURE() << "no such product";
  return {1, value};
}

std::string CaseOf(int dim, const std::string& rest) {
  return "attention hq=1 hkv=1 l=1 t=2 d=" + std::to_string(dim) +
         " dv=1 q=f32 k=f32 v=f32 out=f32 lse=natural data=gauss:1 " + rest;
}

void SetOrder(SumPlan* sum, SumOrder order, int width) {
  sum->order = order;
  sum->width = width;
}

// Channel 0 holds the score, and everything that is added to it is lost: what else is on lane 0,
// and what the other lanes bring at each step of the tree.
TEST(PlanScores, SumsInLanes) {
  for (const bool portable : kArithmetics) {
    const int lanes = optimized::KernelsFor(!portable).dot_lanes;
    ASSERT_TRUE(lanes == 8 || lanes == 16) << "say here how such lanes are added";
    for (const int dim : {16, 17, 32, 64, 129}) {
      PlanAdversary adversary(CaseOf(dim, "scale=1"), portable);
      const Product product = RoundsDownTo(kScore);
      float* q = adversary.Floats("q");
      float* k = adversary.Floats("k");
      for (int i = 0; i < dim; ++i) {
        const bool first_lane = i % lanes == 0;
        const bool tree = i < lanes && (i == 8 || i == 4 || i == 2 || i == 1);
        q[i] = i == 0 ? product.q : first_lane || tree ? LostBeside(kScore) : 0.0f;
        k[i] = i == 0 ? product.k : 1.0f;
        k[dim + i] = i == 0 ? (kScore - kGap) / product.q : 0.0f;
      }
      adversary.ExpectHolds(0.95);
      const int rounds = (dim + lanes - 1) / lanes - 1 + (lanes == 16 ? 4 : 3) + 1;
      adversary.ExpectBreaks("qk one rounding less", [&](Plan* plan) {
        SetOrder(&*plan->qk, SumOrder::kDepth, rounds - 1);
      });
      adversary.ExpectBreaks("qk accumulator",
                             [](Plan* plan) { plan->qk->accumulator.dtype = DType::kFloat64; });
      if (dim < 64) continue;  // more lanes would be as many steps of the tree
      adversary.ExpectBreaks("qk width", [](Plan* plan) { plan->qk->width = 64; });
      if (dim == 64) {
        adversary.ExpectBreaks("qk order",
                               [](Plan* plan) { SetOrder(&*plan->qk, SumOrder::kPairwise, 0); });
      }
    }
  }
}

// One product, one constant, one product with it.
TEST(PlanScores, RoundsTheConstantAndTheScore) {
  for (const bool portable : kArithmetics) {
    for (const int roundings : {1, 2}) {
      const double constant = 1 + 1023 * 0x1p-23;  // an f32
      const double scale = roundings == 1 ? constant : constant + 0x1p-24 * (1 - 0x1p-8);
      const float dot = kScore * (1 + 0x1p-11f);
      PlanAdversary adversary(CaseOf(1, fmt::format("scale={:.17g}", scale)), portable);
      const Product product = RoundsDownTo(dot);
      adversary.Floats("q")[0] = product.q;
      adversary.Floats("k")[0] = product.k;
      const double score = static_cast<double>(dot) * scale;
      adversary.Floats("k")[1] =
          static_cast<float>((score - static_cast<double>(kGap)) / scale) / product.q;
      adversary.ExpectHolds(0.9);
      EXPECT_EQ(adversary.stated().scale_roundings, roundings);
      adversary.ExpectBreaks("scale_roundings", [](Plan* plan) { --*plan->scale_roundings; });
      if (roundings == 1) continue;  // from f64 lse is rounded to f32, which is one more
      adversary.ExpectBreaks("op", [](Plan* plan) { plan->op->dtype = DType::kFloat64; });
    }
  }
}

// A key of codes of 255, of which the first channel holds the score. Where codes are dequantized
// inside, c s + z is rounded as often as is stated, and then its product with the query; where the
// scale is factored out, the product of code and query is rounded, and then that with the scale.
// What the other channels add is lost.
struct CodedKey {
  float scale = 0, bias = 0, query = 0;
};
CodedKey FindCodedKey(bool factored, bool fused) {
  const auto lost_of = [](double exact, double spacing) {
    return (exact - static_cast<double>(static_cast<float>(exact))) / spacing;
  };
  const auto good = [](double lost) { return lost > 0.48 && lost < 0.4999; };
  for (int n = 0; n < 1 << 21; ++n) {
    CodedKey key;
    const float first = (1 + static_cast<float>(n) * 0x1p-24f) / 255;
    const float one = 255 * first;  // code times scale, or code times query
    if (one <= 1 || !good(lost_of(255 * static_cast<double>(first), 0x1p-23))) continue;
    const auto second = static_cast<float>((1024 + 0.49 * 0x1p-13) / static_cast<double>(one));
    const double product = static_cast<double>(one) * static_cast<double>(second);
    if (product < 1024 || !good(lost_of(product, 0x1p-13))) continue;
    key.scale = factored ? second : first;
    key.query = factored ? first : second;
    key.bias = factored || fused ? 0.0f : 0x1.fep-25f;
    return key;
  }
  ADD_FAILURE() << "no such key";
  return {};
}

void ExpectRoundsCodedKeys(int dim, bool portable) {
  const optimized::AttentionKernels kernels = optimized::KernelsFor(!portable);
  const std::string text = std::to_string(dim);
  PlanAdversary adversary("attention hq=1 hkv=1 l=1 t=2 d=" + text + " dv=1 q=f32 k=affine:8:g" +
                              text + ":f32 v=f32 out=f32 scale=1 lse=natural data=gauss:1",
                          portable);
  const bool factored = kernels.Factors();
  const CodedKey key = FindCodedKey(factored, kernels.fused);
  const float lost = factored ? LostBeside(1) / 255 : LostBeside(kScore);
  // On the first lane, and where the tree adds lanes to it: of a register, or of 32 channels.
  std::vector<int> added;
  for (int i = 1; i < dim; ++i) {
    const bool in_lane = factored ? i < 32 : i % kernels.dot_lanes == 0;
    const bool tree = factored ? i == 32 || i == 64 : i < kernels.dot_lanes && (i & (i - 1)) == 0;
    if (in_lane || tree) added.push_back(i);
  }
  adversary.Zero("q");
  adversary.Floats("q")[0] = key.query;
  for (const int i : added) adversary.Floats("q")[i] = lost * (1 - 0x1p-6f);
  for (int i = 0; i < dim; ++i) {
    adversary.Bytes("k_codes")[i] = std::byte{255};
    adversary.Bytes("k_codes")[dim + i] = std::byte{1};
  }
  adversary.Floats("k_scales")[0] = key.scale;
  adversary.Floats("k_biases")[0] = key.bias;
  adversary.Floats("k_scales")[1] = (kScore - kGap) / key.query;
  adversary.Floats("k_biases")[1] = 0;
  adversary.ExpectHolds(0.85);
  adversary.ExpectBreaks("dequantize", [](Plan* plan) {
    plan->dequantize_roundings =
        plan->dequantize == DequantizeKind::kInside ? *plan->dequantize_roundings - 1 : 0;
    plan->dequantize = DequantizeKind::kInside;
  });
  if (!factored) return;
  adversary.ExpectBreaks("qk", [](Plan* plan) {
    plan->qk->order = SumOrder::kLanes;
    plan->qk->width = 2 * std::max(plan->qk->width, 1);
  });
}

TEST(PlanScores, RoundsCodedKeys) {
  const OnTarget without_integers(hwy::SupportedTargets() & ~HWY_AVX3_DL);
  for (const bool portable : kArithmetics) {
    for (const int dim : {32, 64, 128}) ExpectRoundsCodedKeys(dim, portable);
  }
}

// The second product of a lane cancels the first but for the digits that its rounding would lose.
TEST(PlanScores, EntersProductsAsStated) {
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        "attention hq=1 hkv=1 l=1 t=1 d=17 dv=1 q=f32 k=f32 v=f32 out=f32 scale=1 lse=natural "
        "data=gauss:1",
        portable);
    adversary.Zero("q");
    adversary.Zero("k");
    adversary.Floats("q")[0] = -(1 + 0x1p-11f);
    adversary.Floats("k")[0] = 1;
    adversary.Floats("q")[16] = adversary.Floats("k")[16] = 1 + 0x1p-12f;
    adversary.ExpectHolds(0);
    EXPECT_EQ(adversary.Got("lse"), adversary.stated().qk->fma ? 0x1p-24f : 0.0f);
  }
}

// Every score is the bias alone. What the statement has to spare is that unit of |b_j| which the
// bound adds; the log of the sum is off by what rounds the bias, and by its own rounding.
TEST(PlanScores, RoundsTheBias) {
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        "attention hq=1 hkv=1 l=1 t=2048 d=1 dv=1 q=f32 k=f32 v=f32 out=f32 scale=1 alibi=yes "
        "mask=bool:T lse=natural data=gauss:1",
        portable);
    adversary.Zero("q");
    adversary.Zero("mask");
    adversary.Bytes("mask")[0] = std::byte{1};
    float most = 0;
    for (int n = 0; n < 1 << 12; ++n) {  // 2047 slope just above 2^11, less than half a spacing off
      const float slope = 0x1.002p+0f + static_cast<float>(n) * 0x1p-23f;
      const double exact = 2047 * static_cast<double>(slope);
      const auto lost = static_cast<float>(exact - static_cast<double>(static_cast<float>(exact)));
      if (lost > most) most = lost, adversary.Floats("alibi_slopes")[0] = slope;
    }
    EXPECT_GT(most, 0.9f * 2048 * static_cast<float>(kHalfUlp));
    adversary.ExpectHolds(0.2);
    EXPECT_EQ(adversary.stated().bias_roundings, 1);
  }
}

// A mask in f64 that cancels slope times distance: the sum is rounded, not its parts.
TEST(PlanScores, RoundsTheSumOfAlibiAndAWideMaskOnce) {
  constexpr int kTokens = 65;
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        "attention hq=2 hkv=1 l=2 t=65 d=1 dv=1 q=f32 k=f32 v=f32 out=f32 scale=1 alibi=yes "
        "mask=left_pad:3+additive:LT:f64 data=gauss:1",
        portable);
    adversary.Zero("q");
    auto* mask = reinterpret_cast<double*>(adversary.Bytes("mask"));
    for (int h = 0; h < 2; ++h) adversary.Floats("alibi_slopes")[h] = 1000.3f;
    for (int l = 0; l < 2; ++l) {
      for (int j = 0; j < kTokens; ++j) {
        const int distance = std::abs(kTokens - 2 + l - j);
        const double part = static_cast<double>(1000.3f) * distance;
        mask[l * kTokens + j] = part + 0x1p-10 * j;
        adversary.Floats("v")[j] = static_cast<double>(static_cast<float>(part)) > part ? 1 : -1;
      }
    }
    adversary.ExpectHolds(0);
    EXPECT_EQ(adversary.stated().bias_roundings, 1);
  }
}

TEST(PlanScores, StatesTheErrorOfTanh) {
  PlanAdversary adversary("attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 data=gauss:1",
                          false);
  adversary.Ask();
  const double stated = adversary.stated().tanh_error.value();
  std::mt19937 random(1);
  double largest = 0;
  for (int i = 0; i < 200000; ++i) {
    const float x = std::ldexp(static_cast<float>(random()), -32 + static_cast<int>(i % 12) - 8);
    if (x == 0) continue;
    const double exact = TanhDouble(static_cast<double>(x));
    const auto got = static_cast<float>(std::tanh(static_cast<double>(x)));
    largest = std::max(largest, std::fabs(static_cast<double>(got) - exact) / exact);
  }
  EXPECT_LE(largest + kTanhDoubleError, stated);
  EXPECT_GE(largest, stated * (1 - 0x1p-7)) << "the stated error is slack";
}

TEST(PlanScores, TypesThatAddNothing) {
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        "attention hq=1 hkv=1 l=1 t=4160 d=4 q=f32 k=f32 v=f32 out=f32 data=gauss:1", portable);
    adversary.ExpectHolds(0);
    EXPECT_EQ(adversary.stated().merge, MergeKind::kAccumulators);
    adversary.ExpectNoEffect("scores", [](Plan* plan) { plan->scores = DType::kFloat64; });
    adversary.ExpectNoEffect("p", [](Plan* plan) { plan->p = DType::kFloat64; });
    adversary.ExpectNoEffect("partial", [](Plan* plan) { plan->partial = DType::kFloat64; });
    adversary.ExpectNoEffect("fma", [](Plan* plan) {
      plan->qk->fma = !plan->qk->fma;
      plan->pv->fma = !plan->pv->fma;
    });
  }
}

}  // namespace
}  // namespace kvcheck
