#include "reference/judge/special_values.h"

#include <gtest/gtest.h>

#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

TEST(SpecialValues, EveryPairIsClassified) {
  const PairClassifier f16(DType::kFloat16);
  EXPECT_EQ(f16.Classify(1, 1), PairKind::kOrdinary);
  EXPECT_EQ(f16.Classify(kNan, kNan), PairKind::kBothNan);
  EXPECT_EQ(f16.Classify(kNan, 1), PairKind::kObservedNan);
  EXPECT_EQ(f16.Classify(kNan, kInfinity), PairKind::kObservedNan);
  EXPECT_EQ(f16.Classify(1, kNan), PairKind::kExpectedNan);
  EXPECT_EQ(f16.Classify(kInfinity, kNan), PairKind::kExpectedNan);
  EXPECT_EQ(f16.Classify(kInfinity, kInfinity), PairKind::kSameInfinity);
  EXPECT_EQ(f16.Classify(-kInfinity, kInfinity), PairKind::kOppositeInfinities);
  EXPECT_EQ(f16.Classify(kInfinity, 65504), PairKind::kObservedInfinity);
  EXPECT_EQ(f16.Classify(65504, kInfinity), PairKind::kExpectedInfinity);
  EXPECT_EQ(f16.Classify(-0.0, 0.0), PairKind::kZerosOfTwoSigns);
  EXPECT_EQ(f16.Classify(-0.0, -0.0), PairKind::kOrdinary);
  EXPECT_EQ(f16.Classify(65504, 65505), PairKind::kSaturated);
  EXPECT_EQ(f16.Classify(-65504, 65505), PairKind::kOrdinary);
  EXPECT_EQ(f16.Classify(65504, 65504), PairKind::kOrdinary);
}

TEST(SpecialValues, FlushedSubnormalsAreThoseOfTheOutputType) {
  const PairClassifier f16(DType::kFloat16);
  EXPECT_EQ(f16.Classify(0, 0x1p-15), PairKind::kFlushed);
  EXPECT_EQ(f16.Classify(0, 0x1p-14), PairKind::kOrdinary);  // a normal number lost
  EXPECT_EQ(f16.Classify(0, 0x1p-25), PairKind::kOrdinary);  // 0 is its nearest value
  EXPECT_EQ(f16.Classify(0, 0x1.1p-25), PairKind::kFlushed);
  EXPECT_EQ(f16.Classify(0x1p-24, 0), PairKind::kNotFlushed);
  EXPECT_EQ(f16.Classify(0x1p-14, 0), PairKind::kOrdinary);
  const PairClassifier bf16(DType::kBFloat16);
  EXPECT_EQ(bf16.Classify(0, 0x1p-15), PairKind::kOrdinary);
}

TEST(SpecialValues, IntegersHaveNone) {
  const PairClassifier u32(DType::kUInt32);
  EXPECT_EQ(u32.Classify(0, 5), PairKind::kOrdinary);
  EXPECT_EQ(u32.Classify(5, 0), PairKind::kOrdinary);
}

TEST(SpecialValues, ThePolicyOfNanFollowsTheClaim) {
  SpecialPolicy policy;
  policy.accuracy = NanPolicy::kFail;
  policy.conformance = NanPolicy::kEqualBits;
  EXPECT_EQ(Decide(PairKind::kBothNan, Claim::kAccuracy, policy, true), PairDecision::kFails);
  EXPECT_EQ(Decide(PairKind::kBothNan, Claim::kConformance, policy, true), PairDecision::kPasses);
  EXPECT_EQ(Decide(PairKind::kBothNan, Claim::kConformance, policy, false), PairDecision::kFails);
  policy.accuracy = NanPolicy::kEqual;
  EXPECT_EQ(Decide(PairKind::kBothNan, Claim::kAccuracy, policy, false), PairDecision::kPasses);
}

TEST(SpecialValues, CountsPrintWithTheirPolicy) {
  SpecialCounts counts;
  counts.Add(PairKind::kOrdinary);
  counts.Add(PairKind::kBothNan);
  counts.Add(PairKind::kBothNan);
  counts.Add(PairKind::kObservedInfinity);
  counts.Add(PairKind::kFlushed);
  EXPECT_EQ(Describe(counts, Claim::kAccuracy, {}),
            (std::vector<std::string>{
                "NaN in both: 2 (equal)",
                "infinity observed, finite expected: 1 (fails unless an alternative)",
                "0 observed, subnormal expected: 1 (by difference)"}));
}

}  // namespace
}  // namespace kvcheck
