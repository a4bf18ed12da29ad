// The holes through which comparators are known to let wrong tensors pass, each closed by name.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "tests/reference/judge/fake_source.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor F32(const std::vector<double>& values) {
  return MakeTensor(DType::kFloat32, Shape::Unnamed({static_cast<int64_t>(values.size())}), values);
}
Tensor F64(const std::vector<double>& values) {
  return MakeTensor(DType::kFloat64, Shape::Unnamed({static_cast<int64_t>(values.size())}), values);
}

const ToleranceRule kExact = ExactRule{};
const ToleranceRule kHundredth = AbsRelRule{0, 0.01};

Outcome OutcomeOf(const Tensor& want, const Tensor& got, const ToleranceRule& rule) {
  return JudgeTensors(want, got, rule).outcome;
}

TEST(ComparatorHole, NanObservedWhereANumberIsExpectedFails) {
  for (const ToleranceRule& rule : {kExact, kHundredth, ToleranceRule(UlpRule{1 << 20})}) {
    const Verdict verdict = JudgeTensors(F32({1, 2, 3}), F32({1, kNan, 3}), rule);
    EXPECT_EQ(verdict.outcome, Outcome::kFail);
    ASSERT_TRUE(verdict.outputs[0].worst.has_value());
    EXPECT_EQ(verdict.outputs[0].worst->element, 1);
    EXPECT_EQ(verdict.outputs[0].special.Of(PairKind::kObservedNan), 1);
    EXPECT_EQ(verdict.outputs[0].metrics.passing_abs, kInfinity);
  }
}

TEST(ComparatorHole, NumberObservedWhereNanIsExpectedFails) {
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), F32({1, 2}), kExact), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), F32({1, 2}), kHundredth), Outcome::kFail);
}

TEST(ComparatorHole, NanOnBothSidesFailsAToleranceAndEqualsItsOwnBits) {
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), F32({1, kNan}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), F32({1, kNan}), kExact), Outcome::kPass);
  Tensor other = F32({1, kNan});
  other.As<uint32_t>()[1] ^= 1;  // another payload
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), other, kExact), Outcome::kFail);
}

TEST(ComparatorHole, SquaresThatOverflowStillCompare) {
  const Tensor want = F64({1e200, -1e200, 3e200});
  const Verdict same = JudgeTensors(want, want, kHundredth);
  EXPECT_EQ(same.outcome, Outcome::kPass);
  EXPECT_EQ(same.outputs[0].metrics.nmse, 0.0);
  const Verdict wrong = JudgeTensors(want, F64({1e200, 1e200, 3e200}), kHundredth);
  EXPECT_EQ(wrong.outcome, Outcome::kFail);
  // (2e200)^2 over (1 + 1 + 9) e400. A sum of squares has five roundings: two of 3e200 itself, one
  // of a product, two of the sum; the error's square one, a quotient one. The cosine has three such
  // sums, two of them under a root with a rounding of its own, a product and a quotient.
  const auto& metrics = wrong.outputs[0].metrics;
  EXPECT_NEAR(*metrics.nmse, 4.0 / 11, (5 + 1 + 1) * 0x1p-53);
  EXPECT_NEAR(*metrics.cosine, 9.0 / 11, (5 + 2 * 2.5 + 2 + 1 + 1) * 0x1p-53);
  EXPECT_TRUE(std::isfinite(wrong.outputs[0].metrics.rms_abs));
}

TEST(ComparatorHole, TheDifferenceOfOppositeExtremesFails) {
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(OutcomeOf(F64({largest, 1}), F64({-largest, 1}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({largest, 1}), F64({largest, 1}), kHundredth), Outcome::kPass);
}

TEST(ComparatorHole, TwoNegativesDifferAsTwoPositives) {
  EXPECT_EQ(OutcomeOf(F64({-1, -1}), F64({-1, -2}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({-2, -2}), F64({-2, -1}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({-1, -1}), F64({-1, -1.001}), kHundredth), Outcome::kPass);
}

TEST(ComparatorHole, ARelativeDifferenceAt1eMinus20IsSeen) {
  EXPECT_EQ(OutcomeOf(F64({1e-20, 1e-20}), F64({1e-20, 2e-20}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({1e-20, 1e-20}), F64({1e-20, 1.001e-20}), kHundredth), Outcome::kPass);
  const Verdict verdict = JudgeTensors(F64({1e-20, 1e-20}), F64({1e-20, 2e-20}), kHundredth);
  EXPECT_EQ(verdict.outputs[0].metrics.max_rel, 1.0);
}

TEST(ComparatorHole, AMissingTensorFails) {
  const Verdict verdict =
      JudgeTensors({{"a", {F32({1}), kExact}}, {"b", {F32({2}), kExact}}}, {{"a", F32({1})}});
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0], "b: missing; present: a");
}

TEST(ComparatorHole, AnExtraTensorFails) {
  const Verdict verdict =
      JudgeTensors({{"a", {F32({1}), kExact}}}, {{"a", F32({1})}, {"b", F32({2})}});
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.reasons[0], "b: not an output of this case");
}

TEST(ComparatorHole, AnotherShapeFailsEvenWithEqualElements) {
  Tensor got = F32({1, 2, 3, 4});
  got.shape = Shape::Unnamed({2, 2});
  const Verdict verdict = JudgeTensors(F32({1, 2, 3, 4}), got, kExact);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.reasons[0], "tensor: has shape 2x2, 4 expected");
  // A shorter tensor is not compared over its own length.
  EXPECT_EQ(OutcomeOf(F32({1, 2, 3, 4}), F32({1, 2, 3}), kExact), Outcome::kFail);
}

TEST(ComparatorHole, AnotherTypeFailsEvenWithEqualValues) {
  const Verdict verdict = JudgeTensors(F32({1, 2}), F64({1, 2}), kHundredth);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.reasons[0], "tensor: has type float64, float32 expected");
}

TEST(ComparatorHole, ZeroTensorsProveNothing) {
  const Verdict verdict = JudgeTensors(std::map<std::string, RuledTensor>{}, TensorMap{});
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_EQ(verdict.reasons[0], "no tensor was selected: nothing was compared");
}

TEST(ComparatorHole, ATensorWithoutElementsProvesNothing) {
  const Tensor empty(DType::kFloat32, Shape::Unnamed({3, 0}));
  EXPECT_EQ(OutcomeOf(empty, empty, kExact), Outcome::kMistrusted);
}

TEST(ComparatorHole, AllZeroDataHasNoZeroOverZero) {
  const Verdict equal = JudgeTensors(F32({0, 0, 0}), F32({0, 0, 0}), kHundredth);
  EXPECT_EQ(equal.outcome, Outcome::kPass);
  EXPECT_FALSE(equal.outputs[0].metrics.nmse.has_value());
  EXPECT_FALSE(equal.outputs[0].metrics.cosine.has_value());
  EXPECT_EQ(equal.outputs[0].warnings,
            std::vector<std::string>{"every judged value is 0, expected and observed"});
  const Verdict never_written = JudgeTensors(F32({1, 2, 3}), F32({0, 0, 0}), kHundredth);
  EXPECT_EQ(never_written.outcome, Outcome::kFail);
  EXPECT_EQ(*never_written.outputs[0].metrics.nmse, 1.0);
  const Verdict not_zero = JudgeTensors(F32({0, 0, 0}), F32({0, 1e-30, 0}), kHundredth);
  EXPECT_EQ(not_zero.outcome, Outcome::kFail);
  EXPECT_EQ(*not_zero.outputs[0].metrics.nmse, kInfinity);
}

TEST(ComparatorHole, AnAbsoluteToleranceAboveAllDataProvesNothing) {
  EXPECT_EQ(OutcomeOf(F32({1e-5, 2e-5}), F32({0, 0}), AbsRelRule{1e-3, 0}), Outcome::kMistrusted);
}

TEST(ComparatorHole, GarbageInOneRowOf10000IsFoundAndNamed) {
  const Shape shape{{"T", 10000}, {"Dv", 64}};
  std::vector<double> values(640000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = Hashed(1, i);
  const Tensor want = MakeTensor(DType::kFloat32, shape, values);
  for (size_t i = 0; i < 64; ++i) values[7777 * 64 + i] = 2 * Hashed(2, i);
  const Verdict verdict =
      JudgeTensors(want, MakeTensor(DType::kFloat32, shape, values), AbsRelRule{1e-6, 1e-3});
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  const OutputVerdict& out = verdict.outputs[0];
  // What a norm over the whole tensor makes of it.
  EXPECT_GT(*out.metrics.cosine, 0.999);
  EXPECT_EQ(out.counts.failed, 64);
  EXPECT_EQ(out.breakdown[0], "64 of 640000 elements fail, in 1 of 10000 rows, 1 of them wholly");
  EXPECT_EQ(out.breakdown[1], "all failures at t=7777, everything there");
  EXPECT_EQ(out.breakdown.back(),
            "garbage in whole rows, the others are right: rows of [t=7777, dv=0]");
}

TEST(ComparatorHole, InfinitiesEqualOnlyThemselves) {
  for (const ToleranceRule& rule : {kExact, kHundredth}) {
    EXPECT_EQ(OutcomeOf(F32({1, kInfinity}), F32({1, kInfinity}), rule), Outcome::kPass);
    EXPECT_EQ(OutcomeOf(F32({1, kInfinity}), F32({1, -kInfinity}), rule), Outcome::kFail);
    EXPECT_EQ(OutcomeOf(F32({1, kInfinity}), F32({1, 3e38}), rule), Outcome::kFail);
    EXPECT_EQ(OutcomeOf(F32({1, 3e38}), F32({1, kInfinity}), rule), Outcome::kFail);
  }
}

TEST(ComparatorHole, ZerosOfTwoSignsAreEqualUnderAToleranceOnly) {
  EXPECT_EQ(OutcomeOf(F32({1, 0.0}), F32({1, -0.0}), kHundredth), Outcome::kPass);
  const Verdict exact = JudgeTensors(F32({1, 0.0}), F32({1, -0.0}), kExact);
  EXPECT_EQ(exact.outcome, Outcome::kFail);
  EXPECT_EQ(exact.outputs[0].special.Of(PairKind::kZerosOfTwoSigns), 1);
}

TEST(ComparatorHole, Int64BeyondDoubleIsComparedAsIntegers) {
  const Shape shape = Shape::Unnamed({3});
  Tensor want(DType::kInt64, shape);
  Tensor got(DType::kInt64, shape);
  const int64_t values[3] = {(int64_t{1} << 60) + 1, std::numeric_limits<int64_t>::min(),
                             std::numeric_limits<int64_t>::max()};
  std::memcpy(want.As<int64_t>(), values, sizeof(values));
  std::memcpy(got.As<int64_t>(), values, sizeof(values));
  EXPECT_EQ(OutcomeOf(want, got, kExact), Outcome::kPass);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{0}), Outcome::kPass);
  got.As<int64_t>()[0] -= 1;  // the same double
  const Verdict exact = JudgeTensors(want, got, kExact);
  EXPECT_EQ(exact.outcome, Outcome::kFail);
  EXPECT_EQ(exact.outputs[0].worst->expected_text, "1152921504606846977");
  EXPECT_EQ(exact.outputs[0].worst->got_text, "1152921504606846976");
  EXPECT_EQ(exact.outputs[0].worst->error, -1.0);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{0}), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{1}), Outcome::kPass);
  got.As<int64_t>()[2] -= 1;  // max is no double: it would round to 2^63
  EXPECT_EQ(JudgeTensors(want, got, kExact).outputs[0].counts.failed, 2);
}

TEST(ComparatorHole, UInt32IsExact) {
  const Shape shape = Shape::Unnamed({2});
  EXPECT_EQ(OutcomeOf(MakeTensor(DType::kUInt32, shape, {4294967295.0, 1}),
                      MakeTensor(DType::kUInt32, shape, {4294967294.0, 1}), kExact),
            Outcome::kFail);
}

TEST(ComparatorHole, AByteThatIsNoCodeFails) {
  Tensor want(DType::kBool, Shape::Unnamed({2}));
  want.bytes[0] = std::byte{1};
  Tensor got = want;
  got.bytes[0] = std::byte{2};
  const Verdict verdict = JudgeTensors(want, got, kExact);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].special.Of(PairKind::kNoCode), 1);
  EXPECT_EQ(verdict.outputs[0].worst->got_text, "0x02, no bool code");
  EXPECT_THROW(JudgeTensors(got, want, kExact), Error);
}

TEST(ComparatorHole, AnUlpRuleCountsSpacingsOfTheType) {
  const double step = 0x1p-7;  // of bfloat16 in [1, 2)
  const Shape shape = Shape::Unnamed({2});
  const Tensor want = MakeTensor(DType::kBFloat16, shape, {1.5, 1.5});
  const Tensor got = MakeTensor(DType::kBFloat16, shape, {1.5 + step, 1.5 - 2 * step});
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{2}), Outcome::kPass);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{1}), Outcome::kFail);
  EXPECT_EQ(JudgeTensors(want, got, UlpRule{1}).outputs[0].metrics.passing_ulp, 2.0);
}

TEST(ComparatorHole, AToleranceIsMetExactlyOrNotAtAll) {
  const ToleranceRule half = AbsRelRule{0.5, 0};
  EXPECT_EQ(OutcomeOf(F64({10}), F64({10.5}), half), Outcome::kPass);
  EXPECT_EQ(OutcomeOf(F64({10}), F64({std::nextafter(10.5, 11)}), half), Outcome::kFail);
}

TEST(ComparatorHole, AVectorOfManyTilesIsComparedToItsEnd) {
  std::vector<double> values(3 * 65536 + 1, 1.0);
  const Tensor want = F32(values);
  EXPECT_EQ(OutcomeOf(want, want, kExact), Outcome::kPass);
  values.back() = 2;
  const Verdict verdict = JudgeTensors(want, F32(values), kExact);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].worst->coordinates, "[196608]");
}

}  // namespace
}  // namespace kvcheck
