// The holes through which comparators are known to let wrong tensors pass, each closed by name and
// with the public report that shows it (GitHub OWNER/REPOSITORY #NUMBER), in our words. A hole
// without a report says so.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "tests/reference/judge/fake_source.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

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

// Report: flame/blis #279: "residual > limit" is false for NaN, and a broken kernel prints PASS.
// NervanaSystems/ngraph #2028: all_close returns true for NaN against a number.
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

// Report: jfalcou/tts #178: the relative check takes NaN for equal to whatever stands on the other
// side.
TEST(ComparatorHole, NumberObservedWhereNanIsExpectedFails) {
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), F32({1, 2}), kExact), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), F32({1, 2}), kHundredth), Outcome::kFail);
}

// Report: llnl/Silo #275: two NaN are always reported as different, and one wants to choose.
TEST(ComparatorHole, NanOnBothSidesFailsAToleranceAndEqualsItsOwnBits) {
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), F32({1, kNan}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), F32({1, kNan}), kExact), Outcome::kPass);
  Tensor other = F32({1, kNan});
  other.As<uint32_t>()[1] ^= 1;  // another payload
  EXPECT_EQ(OutcomeOf(F32({1, kNan}), other, kExact), Outcome::kFail);
}

// Report: pytorch/pytorch #51912: the cosine of finite float32 vectors near 3e38 is NaN;
// zilliztech/knowhere #1676: of vectors of 1e20 it is 0.
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

// Report: none known. The difference of two finite numbers is infinite.
TEST(ComparatorHole, TheDifferenceOfOppositeExtremesFails) {
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(OutcomeOf(F64({largest, 1}), F64({-largest, 1}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({largest, 1}), F64({largest, 1}), kHundredth), Outcome::kPass);
}

// Report: cgreen-devs/cgreen #146: the size of a pair is the size of its maximum, so that every
// negative number equals 0; kotest/kotest #3095: a percentage of a negative number is a negative
// tolerance.
TEST(ComparatorHole, TwoNegativesDifferAsTwoPositives) {
  EXPECT_EQ(OutcomeOf(F64({-1, -1}), F64({-1, -2}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({-2, -2}), F64({-2, -1}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({-1, -1}), F64({-1, -1.001}), kHundredth), Outcome::kPass);
}

// Report: HDFGroup/hdf5 #5570: h5diff -p finds no difference of order one between numbers near
// 1e-20.
TEST(ComparatorHole, ARelativeDifferenceAt1eMinus20IsSeen) {
  EXPECT_EQ(OutcomeOf(F64({1e-20, 1e-20}), F64({1e-20, 2e-20}), kHundredth), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({1e-20, 1e-20}), F64({1e-20, 1.001e-20}), kHundredth), Outcome::kPass);
  const Verdict verdict = JudgeTensors(F64({1e-20, 1e-20}), F64({1e-20, 2e-20}), kHundredth);
  EXPECT_EQ(verdict.outputs[0].metrics.max_rel, 1.0);
}

// Report: HDFGroup/hdf5 #6102: h5diff -r prints "0 differences found" for every object of two files
// of which one lacks a dataset.
TEST(ComparatorHole, AMissingTensorFails) {
  const Verdict verdict =
      JudgeTensors({{"a", {F32({1}), kExact}}, {"b", {F32({2}), kExact}}}, {{"a", F32({1})}});
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0], "b: missing; present: a; add it under this name");
}

// Report: HDFGroup/hdf5 #6102, the files the other way round.
TEST(ComparatorHole, AnExtraTensorFails) {
  const Verdict verdict =
      JudgeTensors({{"a", {F32({1}), kExact}}}, {{"a", F32({1})}, {"b", F32({2})}});
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.reasons[0], "b: not an output of this case");
}

// Report: numpy/numpy #9988, #21578: allclose broadcasts, so that shapes (5) and (5, 1) agree;
// Samsung/ONE #2658: h5diff calls datasets of other dimensions not comparable, with exit status 0.
TEST(ComparatorHole, AnotherShapeFailsEvenWithEqualElements) {
  Tensor got = F32({1, 2, 3, 4});
  got.shape = Shape::Unnamed({2, 2});
  const Verdict verdict = JudgeTensors(F32({1, 2, 3, 4}), got, kExact);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.reasons[0], "tensor: has shape 2x2, 4 expected");
  // A shorter tensor is not compared over its own length.
  EXPECT_EQ(OutcomeOf(F32({1, 2, 3, 4}), F32({1, 2, 3}), kExact), Outcome::kFail);
}

// Report: Samsung/ONE #2658 and RFC 2008-12-18 of The HDF Group ("Reporting of Non-Comparable
// Datasets by h5diff"): other type classes or signs are not compared, with exit status 0.
TEST(ComparatorHole, AnotherTypeFailsEvenWithEqualValues) {
  const Verdict verdict = JudgeTensors(F32({1, 2}), F64({1, 2}), kHundredth);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.reasons[0], "tensor: has type float64, float32 expected");
}

// Report: paiml/aprender #621: "All tensors match", exit status 0, after comparing 0 of 339
// tensors.
TEST(ComparatorHole, ZeroTensorsProveNothing) {
  const Verdict verdict = JudgeTensors(std::map<std::string, RuledTensor>{}, TensorMap{});
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_EQ(verdict.reasons[0], "no tensor was selected: nothing was compared");
}

// Report: Samsung/ONE #2658: empty datasets are not comparable to h5diff, and the test passes.
TEST(ComparatorHole, ATensorWithoutElementsProvesNothing) {
  const Tensor empty(DType::kFloat32, Shape::Unnamed({3, 0}));
  EXPECT_EQ(OutcomeOf(empty, empty, kExact), Outcome::kMistrusted);
}

// Report: nexusformat/code #203: relative differences are NaN where the left value is 0;
// tracel-ai/burn #5585: the cosine of two zero vectors is 0 / 0.
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

// Report: numpy/numpy #10161: an absolute tolerance that is not 0 by default lets tests of small
// numbers pass that should not.
TEST(ComparatorHole, AnAbsoluteToleranceAboveAllDataProvesNothing) {
  EXPECT_EQ(OutcomeOf(F32({1e-5, 2e-5}), F32({0, 0}), AbsRelRule{1e-3, 0}), Outcome::kMistrusted);
}

// Report: flashinfer-ai/flashinfer #3864: one row of one head is wrong, the rest is clean. That
// cosine and NMSE over a whole tensor hide it is measured in bench/results/detection.csv.
TEST(ComparatorHole, GarbageInOneRowOf10000IsFoundAndNamed) {
  const Shape shape{{"T", 10000}, {"Dv", 64}};
  std::vector<double> values(640000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = Hashed(1, i);
  const Tensor want = MakeTensor(DType::kFloat32, shape, values);
  for (size_t i = 0; i < 64; ++i) values[size_t{7777} * 64 + i] = 2 * Hashed(2, i);
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

// Report: pytorch/pytorch #188680: checks by allclose are blind to the sign of an infinity that a
// zero turned into.
TEST(ComparatorHole, InfinitiesEqualOnlyThemselves) {
  for (const ToleranceRule& rule : {kExact, kHundredth}) {
    EXPECT_EQ(OutcomeOf(F32({1, kInfinity}), F32({1, kInfinity}), rule), Outcome::kPass);
    EXPECT_EQ(OutcomeOf(F32({1, kInfinity}), F32({1, -kInfinity}), rule), Outcome::kFail);
    EXPECT_EQ(OutcomeOf(F32({1, kInfinity}), F32({1, 3e38}), rule), Outcome::kFail);
    EXPECT_EQ(OutcomeOf(F32({1, 3e38}), F32({1, kInfinity}), rule), Outcome::kFail);
  }
}

// Report: pytorch/pytorch #188680: allclose and equal are blind to the sign of zero;
// KhronosGroup/OpenCL-CTS #2806: results of 0 with the wrong sign passed.
TEST(ComparatorHole, ZerosOfTwoSignsAreEqualUnderAToleranceOnly) {
  EXPECT_EQ(OutcomeOf(F32({1, 0.0}), F32({1, -0.0}), kHundredth), Outcome::kPass);
  const Verdict exact = JudgeTensors(F32({1, 0.0}), F32({1, -0.0}), kExact);
  EXPECT_EQ(exact.outcome, Outcome::kFail);
  EXPECT_EQ(exact.outputs[0].special.Of(PairKind::kZerosOfTwoSigns), 1);
}

// Report: pytorch/pytorch #61412 and numpy/numpy #15618: isclose with both tolerances small calls
// large integers equal that differ by up to 512.
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

// Report: numpy/numpy #21768 and #15618, for unsigned integers that no int64 holds.
TEST(ComparatorHole, UInt64BeyondDoubleIsComparedAsIntegers) {
  const Shape shape = Shape::Unnamed({4});
  Tensor want(DType::kUInt64, shape);
  Tensor got(DType::kUInt64, shape);
  const uint64_t values[4] = {(uint64_t{1} << 63) + 1, ~uint64_t{0}, 0, (uint64_t{1} << 53) + 1};
  std::memcpy(want.As<uint64_t>(), values, sizeof(values));
  std::memcpy(got.As<uint64_t>(), values, sizeof(values));
  EXPECT_EQ(OutcomeOf(want, got, kExact), Outcome::kPass);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{0}), Outcome::kPass);
  got.As<uint64_t>()[1] -= 1;  // both round to 2^64
  const Verdict exact = JudgeTensors(want, got, kExact);
  EXPECT_EQ(exact.outcome, Outcome::kFail);
  EXPECT_EQ(exact.outputs[0].worst->expected_text, "18446744073709551615");
  EXPECT_EQ(exact.outputs[0].worst->got_text, "18446744073709551614");
  EXPECT_EQ(exact.outputs[0].worst->error, -1.0);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{0}), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{1}), Outcome::kPass);
  got.As<uint64_t>()[3] += 2;
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{1}), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{2}), Outcome::kPass);
  got.As<uint64_t>()[2] = ~uint64_t{0};  // from end to end: as integers, nothing wraps
  EXPECT_EQ(JudgeTensors(want, got, UlpRule{2}).outputs[0].worst->error, 0x1p64);
}

// Report: numpy/numpy #21768: differences of unsigned integers wrap around in the reported metrics.
TEST(ComparatorHole, UInt32IsExact) {
  const Shape shape = Shape::Unnamed({2});
  EXPECT_EQ(OutcomeOf(MakeTensor(DType::kUInt32, shape, {4294967295.0, 1}),
                      MakeTensor(DType::kUInt32, shape, {4294967294.0, 1}), kExact),
            Outcome::kFail);
}

// Report: none known. A bool that is 2 is true to one reader and unequal to true for another.
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

// Report: none known. Spacings of the computing type in place of the stored one are 2^16 times too
// small for bfloat16.
TEST(ComparatorHole, AnUlpRuleCountsSpacingsOfTheType) {
  const double step = 0x1p-7;  // of bfloat16 in [1, 2)
  const Shape shape = Shape::Unnamed({2});
  const Tensor want = MakeTensor(DType::kBFloat16, shape, {1.5, 1.5});
  const Tensor got = MakeTensor(DType::kBFloat16, shape, {1.5 + step, 1.5 - 2 * step});
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{2}), Outcome::kPass);
  EXPECT_EQ(OutcomeOf(want, got, UlpRule{1}), Outcome::kFail);
  EXPECT_EQ(JudgeTensors(want, got, UlpRule{1}).outputs[0].metrics.passing_ulp, 2.0);
}

// Report: lukas-krecan/JsonUnit #656: whether a difference equal to the tolerance passes is not
// what the documentation says.
TEST(ComparatorHole, AToleranceIsMetExactlyOrNotAtAll) {
  const ToleranceRule half = AbsRelRule{0.5, 0};
  EXPECT_EQ(OutcomeOf(F64({10}), F64({10.5}), half), Outcome::kPass);
  EXPECT_EQ(OutcomeOf(F64({10}), F64({std::nextafter(10.5, 11)}), half), Outcome::kFail);
}

// Report: numpy/numpy #10161: |a - b| <= atol + rtol |b| depends on the order of its arguments.
TEST(ComparatorHole, ARelativeToleranceIsOfTheExpectedSide) {
  const ToleranceRule tenth = AbsRelRule{0, 0.1};
  const Verdict pass = JudgeTensors(F64({10, 10}), F64({9.05, 10}), tenth);
  EXPECT_EQ(pass.outcome, Outcome::kPass);
  const Verdict fail = JudgeTensors(F64({9.05, 10}), F64({10, 10}), tenth);
  EXPECT_EQ(fail.outcome, Outcome::kFail);
  // Either way the numbers say which side is which.
  EXPECT_EQ(fail.outputs[0].worst->expected, 9.05);
  EXPECT_EQ(fail.outputs[0].worst->got, 10.0);
  EXPECT_EQ(pass.outputs[0].metrics.max_rel, (10 - 9.05) / 10);
  EXPECT_EQ(fail.outputs[0].metrics.max_rel, (10 - 9.05) / 9.05);
}

// Report: defineEditor/vde-dataset-viewer #102: what lies beyond the shorter of two tables is not
// compared.
TEST(ComparatorHole, AVectorOfManyTilesIsComparedToItsEnd) {
  std::vector<double> values(3 * 65536 + 1, 1.0);
  const Tensor want = F32(values);
  EXPECT_EQ(OutcomeOf(want, want, kExact), Outcome::kPass);
  values.back() = 2;
  const Verdict verdict = JudgeTensors(want, F32(values), kExact);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].worst->coordinates, "[196608]");
}

Tensor U64(const std::vector<uint64_t>& values) {
  Tensor tensor(DType::kUInt64, Shape::Unnamed({static_cast<int64_t>(values.size())}));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

ToleranceRule RuleOf(const std::string& text) { return ParseToleranceRule(WholeLine(text)); }

// Without a report. A tolerance of 2^53 + 1 is no double, and neither is most of X + Y |want|: with
// either side rounded, the last integer or the last bit passes that should not, or fails.
TEST(ComparatorHole, TolerancesHoldToTheLastBit) {
  const uint64_t odd = (uint64_t{1} << 53) + 1;
  for (const std::string text : {"abs:9007199254740993", "ulp:9007199254740993"}) {
    EXPECT_EQ(OutcomeOf(U64({odd << 10}), U64({(odd << 10) + odd}), RuleOf(text)), Outcome::kPass);
    EXPECT_EQ(OutcomeOf(U64({odd << 10}), U64({(odd << 10) - odd}), RuleOf(text)), Outcome::kPass);
    EXPECT_EQ(OutcomeOf(U64({odd << 10}), U64({(odd << 10) + odd + 1}), RuleOf(text)),
              Outcome::kFail)
        << text;
  }
  // 2^54 - 1 becomes 2^54 as a double.
  const uint64_t want = (uint64_t{1} << 54) - 1;
  EXPECT_NE(OutcomeOf(U64({want}), U64({2 * want}), RuleOf("rel:1")), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(U64({want}), U64({2 * want + 1}), RuleOf("rel:1")), Outcome::kFail);
  // 1 + 2^-53 rounds down to 1.
  EXPECT_NE(OutcomeOf(F64({-0x1p-53}), F64({1}), RuleOf("abs:1,rel:1")), Outcome::kFail);
  EXPECT_EQ(OutcomeOf(F64({-0x1p-53}), F64({1 + 0x1p-52}), RuleOf("abs:1,rel:1")), Outcome::kFail);
  // 1 + 3 x 2^-54 rounds up to 1 + 2^-52.
  const double w = 3 * 0x1p-20;
  EXPECT_EQ(OutcomeOf(F64({w}), F64({w + 1 + 0x1p-52}), RuleOf("abs:1,rel:2^-34")), Outcome::kFail);
  EXPECT_NE(OutcomeOf(F64({w}), F64({w + 1}), RuleOf("abs:1,rel:2^-34")), Outcome::kFail);
  // A product below the smallest double.
  const double tiny = 0x1p-1074;
  EXPECT_EQ(OutcomeOf(F64({3 * tiny}), F64({4 * tiny}), RuleOf("rel:0.25")), Outcome::kFail);
  EXPECT_NE(OutcomeOf(F64({4 * tiny}), F64({5 * tiny}), RuleOf("rel:0.25")), Outcome::kFail);
}

// 64 x 64 elements, of which every second is a thousand times smaller than the others.
struct Halves {
  Tensor want{DType::kFloat32, Shape::Unnamed({64, 64})};
  Tensor got = want;
  // is_small: of row and column. What is small is negated.
  explicit Halves(bool (*is_small)(int row, int column)) {
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < 64; ++column) {
        const int i = 64 * row + column;
        const float sign = i % 3 == 0 ? -1 : 1;
        const float size = static_cast<float>(3 + i % 2);
        want.As<float>()[i] = sign * (is_small(row, column) ? size : 1000 * size);
        got.As<float>()[i] = want.As<float>()[i] * (is_small(row, column) ? -1.0F : 1.0F);
      }
    }
  }
};

// Without a report. A tolerance is small beside the median of the data, and half of them are
// anything of its size.
TEST(ComparatorHole, HalfOfTheDataBelowTheToleranceIsNoPass) {
  const auto judge = [](const Halves& halves) {
    return JudgeTensors(halves.want, halves.got, RuleOf("abs:10"));
  };
  for (const auto is_small : {+[](int row, int) { return row < 32; },            // half of the rows
                              +[](int, int column) { return column % 2 == 1; },  // half of each
                              +[](int row, int) { return row % 8 == 7; }}) {
    const Verdict verdict = judge(Halves(is_small));
    EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
    EXPECT_GT(verdict.outputs[0].counts.loose, 0);
    EXPECT_NE(verdict.reasons[0].find("which are not as expected; at least half of "),
              std::string::npos)
        << verdict.reasons[0];
  }
  // A few rows, and elements here and there, are a warning.
  const Verdict few = judge(Halves([](int row, int) { return row < 6; }));
  EXPECT_EQ(few.outcome, Outcome::kPass);
  ASSERT_EQ(few.outputs[0].warnings.size(), 1u);
  EXPECT_NE(few.outputs[0].warnings[0].find("384 of 4096 elements"), std::string::npos);
  EXPECT_NE(few.outputs[0].warnings[0].find("6 of 64 rows"), std::string::npos);
  const Verdict spread = judge(Halves([](int, int column) { return column % 8 == 1; }));
  EXPECT_EQ(spread.outcome, Outcome::kPass);
  ASSERT_EQ(spread.outputs[0].warnings.size(), 1u);
  EXPECT_NE(spread.outputs[0].warnings[0].find("512 of 4096 elements"), std::string::npos);
  // Fewer are counted.
  const Verdict rare = judge(Halves([](int, int column) { return column % 16 == 1; }));
  EXPECT_EQ(rare.outcome, Outcome::kPass);
  EXPECT_TRUE(rare.outputs[0].warnings.empty());
  EXPECT_EQ(rare.outputs[0].counts.loose, 256);
  // What is as expected hides nothing.
  Halves same([](int row, int) { return row < 32; });
  same.got = same.want;
  EXPECT_EQ(judge(same).outcome, Outcome::kPass);
  EXPECT_EQ(judge(same).outputs[0].counts.loose, 0);
}

// Without a report. Under a policy that takes NaN for NaN, two tensors of NaN are two numbers less
// than nothing.
TEST(ComparatorHole, TensorsWithoutNumbersAreSaidToBe) {
  JudgeOptions equal;
  equal.special = PolicyOf(NanPolicy::kEqual);
  const auto warnings = [&](const std::vector<double>& values, const std::string& rule) {
    const Verdict verdict = Judge(RuledTensorSource({{"x", {F32(values), RuleOf(rule)}}}),
                                  MemorySink(TensorMap{{"x", F32(values)}}), equal);
    EXPECT_EQ(verdict.outcome, Outcome::kPass);
    return verdict.outputs[0].warnings;
  };
  for (const std::string rule : {"exact", "abs:2^-10"}) {
    EXPECT_EQ(warnings({kNan, kNan, kNan}, rule),
              std::vector<std::string>{
                  "3 of 3 judged values are no finite numbers on both sides: 3 NaN, 0 infinite"});
    EXPECT_EQ(warnings({kInfinity, -kInfinity, kNan, 1}, rule),
              std::vector<std::string>{
                  "3 of 4 judged values are no finite numbers on both sides: 1 NaN, 2 infinite"});
    EXPECT_TRUE(warnings({kNan, kInfinity, 1, 2}, rule).empty());
  }
}

// Without a report. What nobody promises is not judged, and where that is most of it, said.
TEST(ComparatorHole, MostlyUnjudgedOutputsAreSaidToBe) {
  for (const int unjudged : {1, 2, 3}) {
    const FakeSource source(
        AccuracyInfo(Shape::Unnamed({4, 2})), 4, [&](ExpectedTile& tile, const TileRequest&) {
          tile.value = {1, 2, 3, 4, 5, 6, 7, 8};
          tile.bound.assign(8, 0.001);
          tile.standing.assign(4, Standing::kJudged);
          std::fill_n(tile.standing.begin(), unjudged, Standing::kUnconstrained);
        });
    const Verdict verdict = Judge(
        source,
        Observed(MakeTensor(DType::kFloat32, Shape::Unnamed({4, 2}), {1, 2, 3, 4, 5, 6, 7, 8})));
    EXPECT_EQ(verdict.outcome, Outcome::kPass);
    const std::vector<std::string> said =
        unjudged < 3 ? std::vector<std::string>{}
                     : std::vector<std::string>{"most elements were not judged: 6 of 8"};
    EXPECT_EQ(verdict.outputs[0].warnings, said);
  }
}

}  // namespace
}  // namespace kvcheck
