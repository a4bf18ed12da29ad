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
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

using optimized::kBlockTokens;
using optimized::kQuad;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What a step reads and writes, of four queries.
struct Numbers {
  alignas(64) float scores[kQuad * kBlockTokens];
  float bias[kQuad * kBlockTokens];
  float shift[kQuad], total[kQuad], rescale[kQuad];
};

float ExpOne(bool fused, float x) {
  float y = 0;
  optimized::ExpOf(fused, &x, 1, &y);
  return y;
}

// Query h of the step. Of NaN no definition is given but that the total and the weights it meets
// are NaN, too.
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
  float lanes[16] = {};
  for (int64_t i = 0; i < step.count; ++i) {
    scores[i] = ExpOne(fused, scores[i] - from);
    lanes[i % 16] += scores[i];
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  const float before = numbers->total[h] * rescale;
  numbers->total[h] = before + lanes[0];
  numbers->shift[h] = top;
  numbers->rescale[h] = rescale;
}

bool SameBits(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Scores of which query h has what no other query has. rounds: of all drawn so far.
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
      default:
        break;
    }
    const bool first = (rounds + h) % 3 == 0;
    numbers.shift[h] = first ? -kInfinity : number(size);
    numbers.total[h] = first ? 0 : std::fabs(number(60)) + 1;
    numbers.rescale[h] = kNan;
  }
  return numbers;
}

void ExpectDefinition(bool fused, const Numbers& drawn, optimized::SoftmaxStep step, int width,
                      const std::string& what) {
  const optimized::AttentionKernels kernels = optimized::KernelsFor(fused);
  Numbers got = drawn;
  Numbers want = drawn;
  if (step.bias != nullptr) step.bias = drawn.bias;
  step.scores = got.scores;
  step.shift = got.shift;
  step.total = got.total;
  step.rescale = got.rescale;
  kernels.softmax[width == 1 ? 0 : 1](step);
  for (int64_t h = 0; h < width; ++h) {
    Define(step, fused && kernels.fused, h, &want);
    const std::string of = what + " query " + std::to_string(h);
    ASSERT_TRUE(SameBits(got.total[h], want.total[h]))
        << of << ": total " << got.total[h] << ", not " << want.total[h];
    if (std::isnan(want.total[h])) continue;
    ASSERT_TRUE(SameBits(got.shift[h], want.shift[h])) << of;
    ASSERT_TRUE(SameBits(got.rescale[h], want.rescale[h])) << of;
    for (int64_t i = 0; i < kBlockTokens; ++i) {
      const int64_t at = h * kBlockTokens + i;
      if (i < step.count) {
        ASSERT_TRUE(SameBits(got.scores[at], want.scores[at])) << of << " token " << i;
      } else if (i < (step.count + 15) / 16 * 16) {
        ASSERT_EQ(got.scores[at], 0) << of << " behind the last token, at " << i;
      }
    }
  }
  for (int64_t h = width; h < kQuad; ++h) {  // of others nothing is touched
    ASSERT_TRUE(SameBits(got.total[h], drawn.total[h])) << what;
    ASSERT_TRUE(SameBits(got.shift[h], drawn.shift[h])) << what;
    ASSERT_TRUE(SameBits(got.rescale[h], drawn.rescale[h])) << what;
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
                                     " tokens" + (fused ? ", fused" : "");
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
