// The plan's words about exp, the denominator and the sink against data. The stored log of the sum
// of exponentials shows them: it errs by exp, its argument, the sum and its own rounding alone.
//
// Scores are products of two f16, which are exact and said to be (h_qk = 0).
//
// Shown by argument: log_error. What it adds to the bound, 2^-50 (log l + ...), is lost beside
// exp_error, which the bound charges to every key, the largest too, whose weight is exactly 1. It
// is tested on the log of the platform.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "optimized/attention/attention_plan.h"
#include "optimized/attention/exp.h"
#include "optimized/attention/kernels.h"
#include "reference/numerics/exp.h"
#include "reference/numerics/fast_round.h"
#include "tests/optimized/attention/plan_adversary.h"

namespace kvcheck {
namespace {

float KernelExp(bool portable, float x) {
  float y = 0;
  optimized::ExpOf(!portable, &x, 1, &y);
  return y;
}

// Relative, of exp at x.
double ErrorOfExp(bool portable, float x) {
  const double exact = ExpDouble(static_cast<double>(x));
  return (static_cast<double>(KernelExp(portable, x)) - exact) / exact;
}

Plan PlanFor(bool portable) {
  optimized::AttentionShape shape;
  shape.portable = portable;
  return optimized::PlanOf(shape, {});
}

PlanAdversary Adversary(int keys, const std::string& rest, bool portable) {
  PlanAdversary adversary(
      fmt::format("attention hq=1 hkv=1 l=1 t={} d=1 dv=1 q=f16 k=f16 v=f32 out=f32 scale=1 "
                  "lse=natural {}data=gauss:1",
                  keys, rest),
      portable);
  adversary.Zero("q");
  adversary.Zero("k");
  adversary.Zero("v");
  return adversary;
}

// Key 0 weighs 1. The others on lane 0 and on the lanes that the tree adds to it weigh just less
// than half a spacing of 1: each addition loses one. Their exp does not matter, nor does that of
// key 0, which is 1.
TEST(PlanSoftmax, SumsWeightsInSixteenLanes) {
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary = Adversary(64, "", portable);
    adversary.SetF16("q", 0, 1);
    float lost = 0;  // a score, an f16
    for (float k = -16.7f; KernelExp(portable, k) < 0x1p-24f; k += 0x1p-6f) {
      k = F32FromF16(F16FromF32(k));
      if (KernelExp(portable, k) < 0x1p-24f) lost = k;
    }
    for (int64_t i = 1; i < 64; ++i) {
      const bool tree = i == 8 || i == 4 || i == 2 || i == 1;
      adversary.SetF16("k", i, i % 16 == 0 || tree ? lost : -1000.0f);
    }
    adversary.Isolate([](Plan* plan) { plan->exp_error = 0; });
    adversary.ExpectHolds(0.9);
    adversary.ExpectBreaks("l depth", [](Plan* plan) {
      plan->l->order = SumOrder::kDepth;
      plan->l->width = 6;
    });
    adversary.ExpectBreaks("l order", [](Plan* plan) { plan->l->order = SumOrder::kPairwise; });
    adversary.ExpectBreaks("l width", [](Plan* plan) { plan->l->width = 32; });
    adversary.ExpectBreaks("l accumulator",
                           [](Plan* plan) { plan->l->accumulator.dtype = DType::kFloat64; });
  }
}

// The error of exp itself, from both sides: at the arguments where it is largest.
TEST(PlanSoftmax, StatesTheErrorOfExp) {
  for (const bool portable : kArithmetics) {
    const double stated = PlanFor(portable).exp_error.value();
    const bool fused = optimized::KernelsFor(!portable).fused;
    const double at_worst =
        std::fabs(ErrorOfExp(portable, fused ? -0x1.049b82p+4f : -0x1.86ee4ap+5f));
    EXPECT_LE(at_worst, stated);
    EXPECT_GE(at_worst, stated * (1 - 0x1p-10)) << "the stated error is slack";
    const float below = std::nextafterf(optimized::kExpUnderflow, -1000.0f);
    const double floor = PlanFor(portable).exp_floor.value();
    EXPECT_EQ(KernelExp(portable, below), 0.0f);
    EXPECT_LE(ExpDouble(static_cast<double>(below)), floor);
    EXPECT_GE(ExpDouble(static_cast<double>(below)), floor * (1 - 0x1p-10));
  }
}

// Key 0 weighs 1, 32 others w with an error as large as can be found where 32 w has no more digits
// than w: then the sum is exact, and said to be.
TEST(PlanSoftmax, ErrsByExp) {
  constexpr int kKeys = 33;
  for (const bool portable : kArithmetics) {
    float best_q = 0, best_top = 0, best_k = 0;
    double best = 0;
    for (int code = 0; code < 512; ++code) {
      const float q = F32FromF16(static_cast<uint16_t>(15 * 1024 + 2 * code));
      const float top = F32FromF16(F16FromF32(-3.2f / q));
      for (int i = 0; i < 31; ++i) {
        const float step = 0.3f + static_cast<float>(i) * 0x1p-9f;
        const float k = F32FromF16(F16FromF32(top - step / q));
        const float x = q * k - q * top;
        const float w = KernelExp(portable, x);
        const float sum = 1 + 32 * w;
        const double error = std::fabs(ErrorOfExp(portable, x));
        if (std::fmod(w, 0x1p-19f) != 0 || sum - 1 != 32 * w || error <= best) continue;
        best = error;
        best_q = q, best_top = top, best_k = k;
      }
    }
    PlanAdversary adversary = Adversary(kKeys, "", portable);
    adversary.SetF16("q", 0, best_q);
    for (int64_t i = 0; i < kKeys; ++i) adversary.SetF16("k", i, i == 0 ? best_top : best_k);
    adversary.Isolate([](Plan* plan) { plan->l->accumulator.dtype = DType::kFloat64; });
    adversary.ExpectHolds(0.5);
    adversary.ExpectBreaks("exp_error", [](Plan* plan) { plan->exp_error = 0x1p-25; });
  }
}

// The argument of exp is rounded: s - m, where m has digits that s - m has no place for. No form
// is tighter than exp=exp; this shows that its one rounding is really used.
TEST(PlanSoftmax, RoundsTheArgumentOfExp) {
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary = Adversary(2, "", portable);
    adversary.SetF16("q", 0, 1);
    adversary.SetF16("k", 0, 0x7p-24f);
    adversary.SetF16("k", 1, -0x1.004p+3f);
    adversary.Floats("v")[1] = 1;
    adversary.Isolate([](Plan* plan) { plan->exp_error = 0; });
    adversary.ExpectHolds(0.5);
  }
}

// Weights that exp drops: 63 of nearly 2^-126, whose values are as large as a sum may hold. The
// bound grants three times their error.
TEST(PlanSoftmax, DropsWeightsBelowTheNormalNumbers) {
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary = Adversary(64, "", portable);
    adversary.SetF16("q", 0, 1);
    for (int64_t i = 1; i < 64; ++i) {
      adversary.SetF16("k", i, -87.375f);
      adversary.Floats("v")[i] = 0x1p121f;
    }
    adversary.ExpectHolds(0.25);
    adversary.ExpectBreaks("exp_floor", [](Plan* plan) { plan->exp_floor = 0x1p-128; });
  }
}

// 33 keys weigh 1 and have the score m; the sink stands a little above. The sum 33 is exact, 33 w
// is rounded, up by most of a unit, and the sum with the sink's 1 is exact again.
TEST(PlanSoftmax, RescalesForTheSinkThatComesLast) {
  constexpr int kKeys = 33;
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary = Adversary(kKeys, "sinks=f32 ", portable);
    adversary.SetF16("q", 0, 1);
    const float top = -3.53125f;
    for (int64_t i = 0; i < kKeys; ++i) adversary.SetF16("k", i, top);
    double best = 0;
    float sink = top;
    for (int i = 1 << 11; i < 1 << 14; ++i) {
      const float at = top + static_cast<float>(i) * 0x1p-20f;
      if (std::fabs(ErrorOfExp(portable, top - at)) > 0.02 * kHalfUlp) continue;
      const float w = KernelExp(portable, top - at);
      const double exact = 33 * static_cast<double>(w);
      const double up = (static_cast<double>(33 * w) - exact) / exact;
      if (up > best) best = up, sink = at;
    }
    adversary.Floats("sinks")[0] = sink;
    adversary.Isolate([](Plan* plan) {
      plan->exp_error = 0.02 * kHalfUlp;
      plan->l->accumulator.dtype = DType::kFloat64;
    });
    adversary.ExpectHolds(0.75);
    adversary.ExpectBreaks("late_sink", [](Plan* plan) { plan->late_sink = false; });
  }
}

TEST(PlanSoftmax, StatesTheErrorOfTheLog) {
  const double stated = PlanFor(false).log_error.value();
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    // Sums of weights: 1 to 2^31, many of them near 1.
    const double near = std::ldexp(static_cast<double>(random()), -64);
    const double total = static_cast<double>(
        static_cast<float>(i % 2 == 0 ? 1 + std::ldexp(near, -static_cast<int>(random() % 24))
                                      : std::exp2(31 * near)));
    if (total == 1) continue;
    const double exact = LogDouble(total);
    ASSERT_LE(std::fabs(std::log(total) - exact), (stated - kLogDoubleError) * exact) << total;
  }
}

}  // namespace
}  // namespace kvcheck
