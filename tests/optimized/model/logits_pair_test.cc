#include "optimized/model/logits_pair.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/optimized/on_target.h"

namespace kvcheck::optimized {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

std::vector<double> Drawn(size_t count, uint64_t seed) {
  std::mt19937_64 draws(seed);
  std::vector<double> values(count);
  // -24 to 0: beyond the cut of 16 that llama.cpp's files have.
  for (double& value : values) value = -24 * static_cast<double>(draws() >> 11) * 0x1p-53;
  return values;
}

// The definition, and how far a sum of its terms in any order may be off: exp within 2 units, the
// product and the difference rounded once each, and count additions.
struct Definition {
  double kl = 0, tolerance = 0;
  size_t top = 0, second = 0, other_top = 0;

  Definition(const std::vector<double>& p, const std::vector<double>& q) {
    double magnitude = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double mass = std::exp(p[i]);
      if (!(mass > 0)) continue;
      kl += mass * (p[i] - q[i]);
      magnitude += mass * (std::fabs(p[i]) + std::fabs(q[i]));
    }
    tolerance = 2 * (static_cast<double>(p.size()) + 4) * kEpsilon * magnitude;
    top = Largest(p, p.size());
    second = p.size() > 1 ? Largest(p, top) : top;
    other_top = Largest(q, q.size());
  }
  static size_t Largest(const std::vector<double>& values, size_t but) {
    size_t best = but == 0 ? 1 : 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i != but && values[i] > values[best]) best = i;
    }
    return best;
  }
};

class LogitsPairs : public testing::Test {
 protected:
  // On every instruction set of this processor; how many there are.
  static int OnEach(const std::vector<double>& p, const std::vector<double>& q) {
    const Definition expected(p, q);
    int targets = 0;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      SCOPED_TRACE(hwy::TargetName(target));
      const OnTarget on(target);
      const LogitsPair pair = ComparePair(p, q);
      EXPECT_TRUE(pair.is_finite && pair.other_is_finite);
      if (expected.kl < kInfinity) {
        EXPECT_LE(std::fabs(pair.kl - expected.kl), expected.tolerance);
      } else {
        EXPECT_EQ(pair.kl, kInfinity);
      }
      EXPECT_EQ(pair.top, expected.top);
      EXPECT_EQ(pair.second, expected.second);
      EXPECT_EQ(pair.other_top, expected.other_top);
      ++targets;
    }
    return targets;
  }
};

TEST_F(LogitsPairs, AreTheDefinitionForEveryLengthAndInstructionSet) {
  for (const size_t count : {1U, 2U, 3U, 7U, 8U, 9U, 15U, 16U, 17U, 31U, 33U, 129U, 1000U}) {
    SCOPED_TRACE(count);
    EXPECT_GT(OnEach(Drawn(count, count), Drawn(count, count + 1)), 0);
  }
}

TEST_F(LogitsPairs, OfEqualNumbersTheFirstIsLargest) {
  for (const size_t count : {2U, 9U, 40U}) {
    std::vector<double> p = Drawn(count, 3);
    std::vector<double> q = Drawn(count, 4);
    p[1] = p[count - 1] = q[1] = q[count - 1] = -1e-3;
    OnEach(p, q);
    OnEach(std::vector<double>(count, -2), std::vector<double>(count, -2));
    // Each place in turn is the largest of p, and the second largest of q.
    for (size_t i = 0; i < count; ++i) {
      std::vector<double> moved = p;
      moved[i] = -1e-4;
      OnEach(moved, q);
      OnEach(q, moved);
    }
  }
}

TEST_F(LogitsPairs, WhatHasNoMassCountsNothing) {
  std::vector<double> p = Drawn(20, 5);
  std::vector<double> q = Drawn(20, 6);
  p[3] = p[19] = -kInfinity;
  OnEach(p, q);
  q[3] = q[19] = -kInfinity;
  OnEach(p, q);
  // What q excludes and p does not is infinitely far.
  q[7] = -kInfinity;
  OnEach(p, q);
}

TEST_F(LogitsPairs, NumbersThatAreNoneAreSaidOfTheirSide) {
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), kInfinity}) {
    for (size_t at = 0; at < 37; ++at) {
      const std::vector<double> right = Drawn(37, 7);
      std::vector<double> values = right;
      values[at] = wrong;
      for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
        const OnTarget on(target);
        EXPECT_FALSE(ComparePair(values, right).is_finite);
        EXPECT_TRUE(ComparePair(values, right).other_is_finite);
        EXPECT_FALSE(ComparePair(right, values).other_is_finite);
        EXPECT_TRUE(ComparePair(right, values).is_finite);
      }
    }
  }
}

TEST(SumProbabilities, IsTheDefinitionForEveryLengthAndInstructionSet) {
  for (const size_t count : {1U, 2U, 7U, 8U, 9U, 15U, 16U, 17U, 129U, 1000U}) {
    std::vector<double> log_p = Drawn(count, count);
    log_p[count / 2] = -kInfinity;
    const double floor = -6;
    ProbabilitySum expected;
    for (double& value : log_p) {
      if (value < floor) value = floor;
      expected.all += std::exp(value);
      expected.above += value > floor ? std::exp(value) : 0;
    }
    // As of Definition: additions in any order, and exp within 2 units.
    const double tolerance = 2 * (static_cast<double>(count) + 4) * kEpsilon * expected.all;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnTarget on(target);
      const ProbabilitySum got = SumProbabilities(log_p, floor);
      EXPECT_LE(std::fabs(got.all - expected.all), tolerance) << count;
      EXPECT_LE(std::fabs(got.above - expected.above), tolerance) << count;
      EXPECT_GT(SumProbabilities(std::vector<double>(count, 1e30), floor).above, 1e300);
    }
  }
}

TEST(ScaleSteps, IsTheDefinitionForEveryStep) {
  std::vector<uint16_t> steps(65536 + 3);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<uint16_t>(7919 * i);
  const auto scale = static_cast<double>(16.0F / 65535);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnTarget on(target);
    std::vector<double> got(steps.size());
    ScaleSteps(steps, scale, -17.25, got.data());
    for (size_t i = 0; i < steps.size(); ++i) {
      ASSERT_EQ(got[i], scale * static_cast<double>(steps[i]) + -17.25) << i;
    }
  }
}

}  // namespace
}  // namespace kvcheck::optimized
