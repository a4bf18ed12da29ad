// The step of the softmax over a block against its definition written out, of one query and of
// four, on every instruction set: the same bits, also where no score is finite.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "optimized/attention/kernels.h"
#include "tests/optimized/attention/horizontal_sum.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

using optimized::kBlockTokens;
using optimized::kQuad;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What nothing may be written to.
constexpr float kCanary = 0x1.2468acp77f;
struct Canaries {
  Canaries() { std::fill(std::begin(numbers), std::end(numbers), kCanary); }
  bool Live() const {
    return std::all_of(std::begin(numbers), std::end(numbers),
                       [](float x) { return x == kCanary; });
  }
  float numbers[16];
};

// What a step reads and writes, of four queries.
struct Numbers {
  alignas(64) float scores[kQuad * kBlockTokens];
  Canaries after_scores;
  float bias[kQuad * kBlockTokens];
  float shift[kQuad];
  Canaries after_shift;
  float total[kQuad];
  Canaries after_total;
  float rescale[kQuad];
  Canaries after_rescale;

  bool CanariesLive() const {
    return after_scores.Live() && after_shift.Live() && after_total.Live() && after_rescale.Live();
  }
};

float ExpOne(bool fused, float x) {
  float y = 0;
  optimized::ExpOf(fused, &x, 1, &y);
  return y;
}

// Query h of the step. Of a score that is NaN its weight and the total are all that is defined.
void Define(const optimized::SoftmaxStep& step, bool fused, int64_t h, Numbers* numbers) {
  float* scores = numbers->scores + h * kBlockTokens;
  float top = numbers->shift[h];
  for (int64_t i = 0; i < step.count; ++i) {
    scores[i] = scores[i] * step.scale;
    if (step.softcap > 0) {
      scores[i] = step.softcap *
                  static_cast<float>(std::tanh(static_cast<double>(scores[i] / step.softcap)));
    }
    if (step.bias != nullptr) scores[i] += step.bias[h * kBlockTokens + i];
    top = std::max(top, scores[i]);
  }
  const float from = top == -kInfinity ? 0 : top;
  const float rescale = ExpOne(fused, numbers->shift[h] - from);
  std::vector<float> lanes(16);
  for (int64_t i = 0; i < step.count; ++i) {
    scores[i] = ExpOne(fused, scores[i] - from);
    lanes[static_cast<size_t>(i) % 16] += scores[i];
  }
  const float before = numbers->total[h] * rescale;
  numbers->total[h] = before + HorizontalSum(lanes);
  numbers->shift[h] = top;
  numbers->rescale[h] = rescale;
}

bool SameBits(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Ordinary scores, and by turns of the queries: none that is finite, a single one, a NaN, an
// infinity, two that are equal and the largest. rounds: of all drawn so far.
Numbers Draw(int64_t rounds, std::mt19937* random) {
  Numbers numbers;
  const auto number = [&](float size) {
    return static_cast<float>(static_cast<int32_t>((*random)())) * 0x1p-31f * size;
  };
  for (int64_t h = 0; h < kQuad; ++h) {
    float* scores = numbers.scores + h * kBlockTokens;
    const float size = std::vector<float>{1, 30, 300, 3e38f}[static_cast<size_t>(rounds % 4)];
    for (int64_t i = 0; i < kBlockTokens; ++i) {
      scores[i] = number(size);
      numbers.bias[h * kBlockTokens + i] = (*random)() % 5 == 0 ? -kInfinity : number(3);
    }
    const auto place = static_cast<int64_t>((*random)() % kBlockTokens);
    switch ((rounds / 4 + h) % 6) {
      case 0:
        std::fill(scores, scores + kBlockTokens, -kInfinity);
        break;
      case 1:
        std::fill(scores, scores + kBlockTokens, -kInfinity);
        scores[place] = number(size);
        break;
      case 2:
        scores[place] = kNan;
        break;
      case 3:
        scores[place] = kInfinity;
        break;
      case 4:
        scores[place] = scores[(place + 17) % kBlockTokens] = size;
        break;
      default:
        break;
    }
    const bool first = (rounds + h) % 3 == 0;
    numbers.shift[h] = first ? -kInfinity : number(size);
    numbers.total[h] = first ? 0 : std::fabs(number(60)) + 1;
    numbers.rescale[h] = kCanary;
  }
  return numbers;
}

// As much of query h as the step defines. before: the scores as the step found them.
void ExpectQuery(const Numbers& got, const Numbers& want, const Numbers& before, int64_t count,
                 int64_t h, const std::string& what) {
  const int64_t first = h * kBlockTokens;
  const bool is_defined = std::none_of(before.scores + first, before.scores + first + count,
                                       [](float score) { return std::isnan(score); });
  ASSERT_TRUE(SameBits(got.total[h], want.total[h]))
      << what << ": total " << got.total[h] << ", not " << want.total[h];
  if (is_defined) {
    ASSERT_TRUE(SameBits(got.shift[h], want.shift[h])) << what;
    ASSERT_TRUE(SameBits(got.rescale[h], want.rescale[h])) << what;
  }
  for (int64_t i = 0; i < kBlockTokens; ++i) {
    const float weight = got.scores[first + i];
    if (i < count) {
      ASSERT_TRUE(is_defined ? SameBits(weight, want.scores[first + i])
                             : std::isnan(weight) || !std::isnan(before.scores[first + i]))
          << what << " token " << i;
    } else if (i < (count + 15) / 16 * 16) {
      ASSERT_EQ(weight, 0) << what << " past `count`, at " << i;
    } else {
      ASSERT_TRUE(SameBits(weight, before.scores[first + i])) << what << " at " << i;
    }
  }
}

void ExpectDefinition(bool fused, const Numbers& drawn, optimized::SoftmaxStep step, int width,
                      const std::string& what) {
  const optimized::AttentionKernels kernels = optimized::KernelsFor(fused);
  Numbers got = drawn;
  Numbers want = drawn;
  step.scores = got.scores;
  step.shift = got.shift;
  step.total = got.total;
  step.rescale = got.rescale;
  kernels.softmax[width == 1 ? 0 : 1](step);
  ASSERT_TRUE(got.CanariesLive()) << what;
  for (int64_t h = 0; h < width; ++h) {
    Define(step, fused && kernels.fused, h, &want);
    ExpectQuery(got, want, drawn, step.count, h, what + " query " + std::to_string(h));
    if (testing::Test::HasFatalFailure()) return;
  }
  for (int64_t h = width; h < kQuad; ++h) {  // of others nothing is touched
    ASSERT_TRUE(SameBits(got.total[h], drawn.total[h])) << what;
    ASSERT_TRUE(SameBits(got.shift[h], drawn.shift[h])) << what;
    ASSERT_TRUE(SameBits(got.rescale[h], drawn.rescale[h])) << what;
    for (int64_t at = h * kBlockTokens; at < (h + 1) * kBlockTokens; ++at) {
      ASSERT_TRUE(SameBits(got.scores[at], drawn.scores[at])) << what << " at " << at;
    }
  }
}

TEST(AttentionSoftmax, IsItsDefinitionOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget forced(target);
    std::mt19937 random(7);
    for (int64_t rounds = 0; rounds < 24; ++rounds) {
      const Numbers drawn = Draw(rounds, &random);
      for (const int64_t count : {1, 15, 16, 17, 63, 64}) {
        for (const bool fused : {false, true}) {
          for (const int width : {1, static_cast<int>(kQuad)}) {
            const std::string what = std::string(hwy::TargetName(target)) + " round " +
                                     std::to_string(rounds) + ", " + std::to_string(count) +
                                     " tokens, width " + std::to_string(width) +
                                     (fused ? ", fused" : "");
            optimized::SoftmaxStep step;
            step.count = count;
            step.scale = 0.17f;
            ExpectDefinition(fused, drawn, step, width, what);
            step.bias = drawn.bias;
            ExpectDefinition(fused, drawn, step, width, what + ", bias");
            step.softcap = 20;
            ExpectDefinition(fused, drawn, step, width, what + ", bias and softcap");
            step.bias = nullptr;
            ExpectDefinition(fused, drawn, step, width, what + ", softcap");
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
