// The limit on the relative error: a lane whose ratio repeats the record is quiet (few types have
// many ratios, so that ties are common), and one of the next greater ratio is not.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "optimized/compare/code_type.h"
#include "optimized/compare/pass_plan.h"

namespace kvcheck {
namespace {

struct Ratio {
  double ratio;  // error / want, to nearest
  double error;
  double want;
};

LaneLimits LimitsAfter(const PassPlan& plan, double max_rel) {
  PassSummary records;
  records.max_rel = max_rel;
  return LimitsOf(plan, records);
}

// As the lanes compute it.
bool IsQuietInFloat(const LaneLimits& limits, const Ratio& pair) {
  return static_cast<float>(pair.error) <= limits.ratio32 * static_cast<float>(pair.want);
}
bool IsQuietInDouble(const LaneLimits& limits, const Ratio& pair) {
  return pair.error <= limits.ratio * pair.want;
}

// Every pair of numbers of `dtype` whose expected one is in [1, 2), with an error of at most 31/64
// of it, where the limits of float lanes end; by ratio. Other binades have these ratios, or some.
std::vector<Ratio> AllRatios(DType dtype) {
  const CodeType& type = CodeTypeOf(dtype);
  const uint64_t one = static_cast<uint64_t>(type.bias) << type.mantissa_bits;
  const uint64_t binade = uint64_t{1} << type.mantissa_bits;
  std::vector<Ratio> ratios;
  for (uint64_t want = one; want < one + binade; ++want) {
    for (uint64_t got = one - binade; got < one + 2 * binade; ++got) {
      const double w = ValueOf(dtype, want);
      const double error = std::fabs(ValueOf(dtype, got) - w);
      if (error > 0 && error / w < 0.5 - 0x1p-6) ratios.push_back({error / w, error, w});
    }
  }
  std::sort(ratios.begin(), ratios.end(),
            [](const Ratio& a, const Ratio& b) { return a.ratio < b.ratio; });
  return ratios;
}

TEST(RatioLimit, PassesEveryRepeatedRecordOfTwoByteFloatsAndNothingGreater) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const PassPlan plan = MakePassPlan(dtype, {.kind = PassRule::Kind::kAbsRel, .relative = 1});
    const std::vector<Ratio> ratios = AllRatios(dtype);
    int64_t loud_records = 0, quiet_beyond = 0, distinct = 0;
    for (size_t first = 0; first < ratios.size();) {
      size_t next = first;
      const LaneLimits limits = LimitsAfter(plan, ratios[first].ratio);
      for (; next < ratios.size() && ratios[next].ratio == ratios[first].ratio; ++next) {
        loud_records += !IsQuietInFloat(limits, ratios[next]);
        loud_records += !IsQuietInDouble(limits, ratios[next]);
      }
      for (size_t i = next; i < ratios.size() && ratios[i].ratio == ratios[next].ratio; ++i) {
        quiet_beyond += IsQuietInFloat(limits, ratios[i]);
        quiet_beyond += IsQuietInDouble(limits, ratios[i]);
      }
      first = next;
      ++distinct;
    }
    EXPECT_EQ(loud_records, 0) << Name(dtype);
    EXPECT_EQ(quiet_beyond, 0) << Name(dtype);
    EXPECT_GT(distinct, 1000) << Name(dtype);
  }
}

// error / want below 2^bits, and the next greater fraction of a want below this one: the two are as
// near to each other as ratios get.
std::pair<Ratio, Ratio> Neighbours(std::mt19937_64& random, int bits) {
  for (;;) {
    const int64_t b = static_cast<int64_t>(random() >> (64 - bits)) | 1;
    const int64_t a = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(b)) * 31 / 64;
    if (b < 128 || std::gcd(a, b) != 1 || a == 1) continue;
    // The inverse of a modulo b, by Euclid.
    int64_t r0 = b, r1 = a, t0 = 0, t1 = 1;
    while (r1 != 0) {
      const int64_t quotient = r0 / r1;
      r0 -= quotient * r1, t0 -= quotient * t1;
      std::swap(r0, r1), std::swap(t0, t1);
    }
    const int64_t inverse = t0 < 0 ? t0 + b : t0;
    const int64_t b_next = b - inverse;
    const int64_t a_next = (a * b_next + 1) / b;
    if (a_next * b - a * b_next != 1 || 64 * a_next >= 31 * b_next || 64 * a >= 31 * b) continue;
    const auto ratio = [](int64_t error, int64_t want) {
      const double e = static_cast<double>(error), w = static_cast<double>(want);
      return Ratio{e / w, e, w};
    };
    return {ratio(a, b), ratio(a_next, b_next)};
  }
}

TEST(RatioLimit, SeparatesTheNearestRatiosInDoubleLanes) {
  std::mt19937_64 random(3);
  for (const auto& [dtype, bits] : {std::pair{DType::kFloat32, 24},
                                    {DType::kFloat16, 11},
                                    {DType::kBFloat16, 8},
                                    {DType::kInt16, 15},
                                    {DType::kUInt16, 16}}) {
    const PassPlan plan = MakePassPlan(dtype, {.kind = PassRule::Kind::kAbsRel, .relative = 1});
    for (int i = 0; i < 100000; ++i) {
      const auto [record, beyond] = Neighbours(random, bits);
      const LaneLimits limits = LimitsAfter(plan, record.ratio);
      ASSERT_TRUE(IsQuietInDouble(limits, record))
          << Name(dtype) << " " << record.error << "/" << record.want;
      ASSERT_FALSE(IsQuietInDouble(limits, beyond) || IsQuietInFloat(limits, beyond))
          << Name(dtype) << " " << record.error << "/" << record.want << " beside " << beyond.error
          << "/" << beyond.want;
    }
  }
}

}  // namespace
}  // namespace kvcheck
