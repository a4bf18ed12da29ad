// The plan's words about P.V against data: the order of the sum, blocks, rescales, merges,
// dequantized codes; and the fields that change no bound.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "optimized/attention/kernels.h"
#include "reference/numerics/exp.h"
#include "tests/optimized/attention/plan_adversary.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

float Exp(bool portable, float x) {
  float y = 0;
  optimized::ExpOf(!portable, &x, 1, &y);
  return y;
}

// All weights are 1; the first value is 1, and each that follows is lost beside the sum.
TEST(PlanSums, AddsTermByTermAndBlockByBlock) {
  for (const bool portable : kArithmetics) {
    for (const int tokens : {9, 64, 128}) {
      PlanAdversary adversary(
          fmt::format("attention hq=1 hkv=1 l=1 t={} d=1 dv=1 q=f32 k=f32 v=f32 out=f32 scale=1 "
                      "data=gauss:1",
                      tokens),
          portable);
      adversary.Zero("q");
      for (int i = 0; i < tokens; ++i) {
        adversary.Floats("v")[i] = i == 0 ? 1.0f : i < 64 ? 0x1.fffep-25f : 0.0f;
      }
      adversary.Isolate([](Plan* plan) {
        plan->exp_error = 0;
        plan->l->accumulator.dtype = DType::kFloat64;  // 1 + 1 + ... is exact
      });
      adversary.ExpectHolds(0.75);
      adversary.ExpectBreaks("pv accumulator", [](Plan* plan) {
        plan->pv->accumulator.dtype = DType::kFloat64;
        plan->op->dtype = DType::kFloat64;
      });
      if (tokens < 64) continue;
      adversary.ExpectBreaks("pv order", [](Plan* plan) {
        plan->pv->order = SumOrder::kLanes;
        plan->pv->width = 2;
      });
      adversary.ExpectBreaks("pv order", [](Plan* plan) { plan->pv->order = SumOrder::kPairwise; });
      adversary.ExpectBreaks("block", [](Plan* plan) { plan->block = 32; });
    }
  }
}

// A running sum to which every step adds two roundings in one direction: its product with the
// rescale, and the sum with a block's value, which is chosen for that and for the next step.
struct Climb {
  explicit Climb(bool portable, bool up) : up(up) {
    // A rescale whose exp is as good as exact, a little below 1.
    for (float x = -0x1p-10f;; x = std::nextafterf(x, -1.0f)) {
      const double exact = ExpDouble(static_cast<double>(x));
      step = x;
      factor = Exp(portable, x);
      if (std::fmod(x, 0x1p-26f) == 0 &&
          std::fabs(static_cast<double>(factor) - exact) < 0x1p-6 * kHalfUlp) {
        break;
      }
    }
  }
  // Units of the spacing of `sum` by which sum times factor is rounded in the wanted direction.
  double Gain(float sum) const {
    const double exact = static_cast<double>(sum) * static_cast<double>(factor);
    const double error = static_cast<double>(sum * factor) - exact;
    return (up ? error : -error) / 0x1p-23;
  }
  // What the next block adds: a few spacings, and nearly half of one that is rounded.
  float Value(float sum) const {
    const float product = sum * factor;
    float best = 0;
    double gain = -1;
    for (int n = 0; n < 400; ++n) {
      const float value = (static_cast<float>(n) + (up ? 0.501f : 0.499f)) * 0x1p-23f;
      const double next = Gain(product + value);
      if (next > gain) gain = next, best = value;
    }
    return best;
  }
  bool up;
  float step = 0, factor = 0;
};

// One key in each block of two splits, whose maximum grows from block to block. The first key of a
// split is the result, up to what is added to move the digits: the sums of one split only round up,
// those of the other only down, and their results cancel.
TEST(PlanSums, RescalesAtEachBlockOfASplit) {
  constexpr int kTokens = 4160;  // 65 blocks: the shortest that is three splits and stated as two
  constexpr int kBlocks = 32;
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        fmt::format("attention hq=1 hkv=1 l=1 t={} d=1 dv=1 q=f32 k=f32 v=f32 out=f32 scale=1 "
                    "mask=bool:T data=gauss:1",
                    kTokens),
        portable);
    adversary.Zero("mask");
    adversary.Zero("v");
    adversary.Floats("q")[0] = 1;
    for (const bool up : {true, false}) {
      const Climb climb(portable, up);
      const int first = up ? 0 : kBlocks;
      float sum = 0;
      for (int b = 0; b < kBlocks; ++b) {
        const int key = 64 * (first + b);
        adversary.Bytes("mask")[key] = std::byte{1};
        adversary.Floats("k")[key] = static_cast<float>(kBlocks - 1 - b) * climb.step;
        float value = 0;
        if (b == 0) {
          double gain = -1;
          for (int n = 0; n < 4000; ++n) {
            const float start = 1 + 0x1p-5f + static_cast<float>(n) * 0x1p-23f;
            if (climb.Gain(start) > gain) gain = climb.Gain(start), value = start;
          }
          sum = value;
        } else {
          value = climb.Value(sum);
          sum = sum * climb.factor + value;
        }
        adversary.Floats("v")[key] = up ? value : -value;
      }
    }
    adversary.Isolate([](Plan* plan) { plan->exp_error = 0x1p-6 * kHalfUlp; });
    adversary.ExpectHolds(0.8);
    EXPECT_EQ(adversary.stated().splits, 2);
    adversary.ExpectBreaks("block", [](Plan* plan) { plan->block = 128; });
    adversary.ExpectBreaks("splits", [](Plan* plan) { plan->splits = 3; });
  }
}

// The second product of a chain enters it rounded, or not.
TEST(PlanSums, EntersProductsAsStated) {
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        "attention hq=1 hkv=1 l=1 t=2 d=1 dv=1 q=f32 k=f32 v=f32 out=f32 scale=1 data=gauss:1",
        portable);
    adversary.Floats("q")[0] = 1;
    adversary.Floats("k")[0] = 0;
    adversary.Floats("k")[1] = -0.3f;
    const float weight = Exp(portable, -0.3f);
    adversary.Floats("v")[1] = 1.3f;
    adversary.Floats("v")[0] = -(1.3f * weight);
    adversary.ExpectHolds(0);
    EXPECT_EQ(adversary.Got("out") != 0, adversary.stated().pv->fma);
  }
}

// Nine keys of equal weight, of which one has a value that is rounded as often as is stated, and
// a ninth of which is rounded.
TEST(PlanSums, RoundsDequantizedValues) {
  const OnTarget without_integers(hwy::SupportedTargets() & ~HWY_AVX3_DL);
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        "attention hq=1 hkv=1 l=1 t=9 d=1 dv=32 q=f32 k=f32 v=affine:8:g32:f32 out=f32 scale=1 "
        "data=gauss:1",
        portable);
    adversary.Zero("q");
    adversary.Zero("v_codes");
    adversary.Zero("v_scales");
    adversary.Zero("v_biases");
    for (int i = 0; i < 32; ++i) adversary.Bytes("v_codes")[i] = std::byte{255};
    const bool fused = optimized::KernelsFor(!portable).fused;
    double most = 0;
    float scale = 0, bias = 0;
    for (int n = 0; n < 100000; ++n) {
      const float s = (1.125f + static_cast<float>(n) * 0x1p-23f) / 255;
      const double exact = 255 * static_cast<double>(s);
      const float product = 255 * s;
      const float z = fused ? 0.0f : 0x1.fep-25f;
      const float ninth = (product + z) / 9;
      const double whole = (exact + static_cast<double>(z)) / 9;
      const double lost = (whole - static_cast<double>(ninth)) / whole;
      if (lost > most) most = lost, scale = s, bias = z;
    }
    adversary.Floats("v_scales")[0] = scale;
    adversary.Floats("v_biases")[0] = bias;
    adversary.Isolate([](Plan* plan) {
      plan->exp_error = 0;
      plan->l->accumulator.dtype = DType::kFloat64;   // 1 + 1 + ...
      plan->pv->accumulator.dtype = DType::kFloat64;  // c + 0 + ...
    });
    adversary.ExpectHolds(0.5);
    adversary.ExpectBreaks("dequantize", [](Plan* plan) {
      plan->dequantize_roundings =
          plan->dequantize == DequantizeKind::kInside ? *plan->dequantize_roundings - 1 : 0;
      plan->dequantize = DequantizeKind::kInside;
    });
  }
}

// Where scales stay out of the sums, values that are small while c s and z are large: weight times
// scale is rounded, its product with the code, and weight times bias, which no single rounding of
// c s + z explains. Codes dequantized inside are exact here, or nearly so.
TEST(PlanSums, RoundsThePartsOfCodedValues) {
  const OnTarget without_integers(hwy::SupportedTargets() & ~HWY_AVX3_DL);
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        "attention hq=1 hkv=1 l=1 t=2 d=1 dv=32 q=f32 k=f32 v=affine:8:g32:f32 out=f32 scale=1 "
        "data=gauss:1",
        portable);
    adversary.Zero("v_codes");
    adversary.Zero("v_scales");
    adversary.Zero("v_biases");
    adversary.Floats("q")[0] = 1;
    adversary.Floats("k")[0] = 0;
    for (int i = 32; i < 64; ++i) adversary.Bytes("v_codes")[i] = std::byte{255};
    double most = 0;
    for (int n = 0; n < 400; ++n) {
      const float x = -0x1.1p-1f - static_cast<float>(n) * 0x1p-16f;
      const float weight = Exp(portable, x);
      for (int m = 0; m < 400; ++m) {
        const float scale = (1 + static_cast<float>(m) * 0x1p-20f) * 0x1.c8p+0f;
        const float bias = -(255 * scale);
        const float got = 255 * (weight * scale) + weight * bias;
        const double exact = static_cast<double>(weight) *
                             (255 * static_cast<double>(scale) + static_cast<double>(bias));
        const double error = std::fabs(static_cast<double>(got) - exact) /
                             (510 * static_cast<double>(weight * scale));
        if (error <= most) continue;
        most = error;
        adversary.Floats("k")[1] = x;
        adversary.Floats("v_scales")[1] = scale;
        adversary.Floats("v_biases")[1] = bias;
      }
    }
    adversary.Isolate([](Plan* plan) {
      plan->pv->accumulator.dtype = DType::kFloat64;  // one key has a value
    });
    const bool factored = optimized::KernelsFor(!portable).Factors();
    adversary.ExpectHolds(factored ? 0.5 : 0);
    if (!factored) continue;
    adversary.ExpectBreaks("dequantize", [](Plan* plan) {
      plan->dequantize = DequantizeKind::kInside;
      plan->dequantize_roundings = 1;
    });
  }
}

// Where weight times scale leaves the normal numbers, what it loses is multiplied by the code.
TEST(PlanSums, MultipliesWhatUnderflowsByTheCode) {
  constexpr int kDim = 32;
  for (const bool portable : kArithmetics) {
    PlanAdversary adversary(
        "attention hq=1 hkv=1 l=1 t=2 d=1 dv=32 q=f32 k=f32 v=affine:8:g32:f32 out=f32 scale=1 "
        "data=gauss:1",
        portable);
    adversary.Floats("q")[0] = 1;
    adversary.Floats("k")[0] = 0;
    // The lightest key: its weight is about 1.5 2^-126.
    adversary.Floats("k")[1] = -86.93f;
    for (int c = 0; c < kDim; ++c) {
      adversary.Bytes("v_codes")[c] = std::byte{0};
      adversary.Bytes("v_codes")[kDim + c] = std::byte{128};
    }
    adversary.Floats("v_scales")[0] = adversary.Floats("v_scales")[1] = 0x1p-24f;
    adversary.Floats("v_biases")[0] = 0;
    adversary.Floats("v_biases")[1] = -128 * 0x1p-24f;
    adversary.ExpectHolds(0);
    if (optimized::KernelsFor(!portable).Factors()) {
      EXPECT_NE(adversary.Got("out"), 0.0f) << "something was lost";
    }
  }
}

}  // namespace
}  // namespace kvcheck
