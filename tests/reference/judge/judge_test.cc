#include "reference/judge/judge.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <latch>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "reference/judge/accumulate.h"
#include "reference/judge/ordered_parallel.h"
#include "reference/spec/error.h"
#include "tests/reference/judge/fake_source.h"
#include "tests/reference/numerics/special_doubles.h"

#if defined(__SANITIZE_THREAD__)
#define KVCHECK_UNDER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVCHECK_UNDER_THREAD_SANITIZER 1
#endif
#endif
#ifndef KVCHECK_UNDER_THREAD_SANITIZER
#define KVCHECK_UNDER_THREAD_SANITIZER 0
#endif

namespace kvcheck {
namespace {

const Shape kRows{{"B", 2}, {"Hq", 3}, {"L", 7}, {"Dv", 9}};  // 42 rows of 9

using Fill = FakeSource::Fill;

void FillHashed(ExpectedTile& tile, double bound) {
  const uint64_t length = tile.value.size() / static_cast<uint64_t>(tile.row_count);
  for (size_t i = 0; i < tile.value.size(); ++i) {
    tile.value[i] = Hashed(1, static_cast<uint64_t>(tile.first_row) * length + i);
  }
  tile.bound.assign(tile.value.size(), bound);
  tile.mass.assign(tile.value.size(), 1);
}

std::vector<double> HashedValues(const Shape& shape) {
  std::vector<double> values(static_cast<size_t>(shape.ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = Hashed(1, i);
  return values;
}

// Judges values against Hashed(1, .) with the given bound and further parts.
Verdict JudgeValues(const std::vector<double>& got, double bound, const Fill& more = {},
                    DType dtype = DType::kFloat64, OutputInfo info = AccuracyInfo(kRows),
                    const JudgeOptions& options = {}) {
  info.dtype = dtype;
  const FakeSource source(info, 5, [&](ExpectedTile& tile, const TileRequest& request) {
    FillHashed(tile, bound);
    if (more) more(tile, request);
  });
  return Judge(source, Observed(MakeTensor(dtype, info.shape, got)), options);
}

TEST(Judge, AnErrorOfTheBoundPassesAndOneStepMoreFails) {
  std::vector<double> got = HashedValues(kRows);
  got[100] += 0x1p-10;  // exact: values are multiples of 2^-20
  EXPECT_EQ(JudgeValues(got, 0x1p-10).outcome, Outcome::kPass);
  got[100] = std::nextafter(got[100], 2);
  const Verdict verdict = JudgeValues(got, 0x1p-10);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].rule, "derived bound");
  EXPECT_EQ(verdict.outputs[0].worst->coordinates, "[b=0, hq=1, l=4, dv=1]");
  EXPECT_EQ(verdict.reasons[0], "out: 1 of 378 judged elements fail: derived bound");
}

TEST(Judge, NanFailsWhateverTheBound) {
  std::vector<double> got = HashedValues(kRows);
  got[3] = kNan;
  const Verdict verdict = JudgeValues(got, 0.05);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].worst->ratio, kInfinity);
}

TEST(Judge, ExpectedNanMatchesAnyNanByDefault) {
  std::vector<double> got = HashedValues(kRows);
  got[3] = -kNan;
  const auto nan_at_3 = [](ExpectedTile& tile, const TileRequest&) {
    if (tile.first_row == 0) tile.value[3] = kNan;
  };
  EXPECT_EQ(JudgeValues(got, 0x1p-10, nan_at_3).outcome, Outcome::kPass);
  got[3] = 0;
  EXPECT_EQ(JudgeValues(got, 0x1p-10, nan_at_3).outcome, Outcome::kFail);
}

TEST(Judge, AnInfinityPassesOnlyAsAnAlternative) {
  std::vector<double> got = HashedValues(kRows);
  got[3] = kInfinity;
  EXPECT_EQ(JudgeValues(got, 0x1p-10).outcome, Outcome::kFail);
  OutputInfo info = AccuracyInfo(kRows);
  info.reasons = {"unused", "overflow"};
  const auto alternative = [](ExpectedTile& tile, const TileRequest&) {
    if (tile.first_row == 0) tile.alternatives = {{3, kInfinity, false, 1}};
  };
  const Verdict verdict = JudgeValues(got, 0x1p-10, alternative, DType::kFloat64, info);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[0].alternatives, (std::vector<ReasonCount>{{"overflow", 1}}));
  got[3] = -kInfinity;
  EXPECT_EQ(JudgeValues(got, 0x1p-10, alternative, DType::kFloat64, info).outcome, Outcome::kFail);
}

TEST(Judge, FreeElementsAreCountedAndNotJudged) {
  std::vector<double> got = HashedValues(kRows);
  got[3] = kNan;
  OutputInfo info = AccuracyInfo(kRows);
  info.reasons = {"left over"};
  const auto free = [](ExpectedTile& tile, const TileRequest&) {
    if (tile.first_row == 0) tile.alternatives = {{3, 0, true, 0}};
  };
  const Verdict verdict = JudgeValues(got, 0x1p-10, free, DType::kFloat64, info);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[0].counts.free, 1);
  EXPECT_EQ(verdict.outputs[0].counts.judged, 377);
  EXPECT_EQ(verdict.outputs[0].alternatives, (std::vector<ReasonCount>{{"left over", 1}}));
}

TEST(Judge, ConformanceIsEqualityOfCodes) {
  OutputInfo info = AccuracyInfo(kRows);
  info.claim = Claim::kConformance;
  std::vector<double> want = HashedValues(kRows);
  const auto rounded = [](ExpectedTile& tile, const TileRequest&) {
    RoundAll(tile.value, DType::kBFloat16);
    tile.bound.clear();
  };
  EXPECT_EQ(JudgeValues(want, 0, rounded, DType::kBFloat16, info).outcome, Outcome::kPass);
  RoundAll(want, DType::kBFloat16);
  want[50] = Decode(DType::kBFloat16, Encode(DType::kBFloat16, want[50]) + 1);
  const Verdict verdict = JudgeValues(want, 0, rounded, DType::kBFloat16, info);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].counts.failed, 1);
  EXPECT_EQ(verdict.outputs[0].rule, "bytes equal");
  EXPECT_EQ(verdict.outputs[0].metrics.max_ulp, 1.0);
}

TEST(Judge, ConformanceTellsZerosApartUnlessAnAlternativeSaysOtherwise) {
  OutputInfo info = AccuracyInfo(kRows);
  info.claim = Claim::kConformance;
  info.reasons = {"sign of zero"};
  std::vector<double> got(378, 1.0);
  got[8] = -0.0;
  const auto zero = [](ExpectedTile& tile, const TileRequest&) {
    tile.value.assign(tile.value.size(), 1.0);
    if (tile.first_row == 0) tile.value[8] = 0.0;
  };
  EXPECT_EQ(JudgeValues(got, 0, zero, DType::kFloat16, info).outcome, Outcome::kFail);
  const auto either = [&](ExpectedTile& tile, const TileRequest& request) {
    zero(tile, request);
    if (tile.first_row == 0) tile.alternatives = {{8, -0.0, false, 0}};
  };
  EXPECT_EQ(JudgeValues(got, 0, either, DType::kFloat16, info).outcome, Outcome::kPass);
}

TEST(Judge, NoAlternativeSavesAByteThatIsNoCode) {
  OutputInfo info = AccuracyInfo(Shape::Unnamed({4}), DType::kBool);
  info.claim = Claim::kConformance;
  info.reasons = {"NaN"};
  const FakeSource source(info, 1, [](ExpectedTile& tile, const TileRequest&) {
    tile.alternatives = {{0, kNan, false, 0}};
  });
  Tensor got(DType::kBool, info.shape);
  EXPECT_EQ(Judge(source, Observed(got)).outcome, Outcome::kPass);
  got.bytes[0] = std::byte{7};
  EXPECT_EQ(Judge(source, Observed(got)).outcome, Outcome::kFail);
}

TEST(Judge, RowsThatPromiseNothingAreCountedByReason) {
  OutputInfo info = AccuracyInfo(kRows);
  info.reasons = {"padding", "input not finite"};
  std::vector<double> got = HashedValues(kRows);
  for (size_t i = 0; i < 18; ++i) got[i] = kNan;
  const auto standing = [](ExpectedTile& tile, const TileRequest&) {
    tile.standing.assign(static_cast<size_t>(tile.row_count), Standing::kJudged);
    tile.standing_reason.assign(static_cast<size_t>(tile.row_count), 0);
    if (tile.first_row != 0) return;
    tile.standing[0] = Standing::kUnconstrained;
    tile.standing[1] = Standing::kUndefined;
    tile.standing_reason[1] = 1;
  };
  const Verdict verdict = JudgeValues(got, 0x1p-10, standing, DType::kFloat64, info);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[0].counts.unconstrained, 9);
  EXPECT_EQ(verdict.outputs[0].counts.undefined, 9);
  EXPECT_EQ(verdict.outputs[0].counts.judged, 360);
  EXPECT_EQ(verdict.outputs[0].not_judged,
            (std::vector<ReasonCount>{{"padding", 9}, {"input not finite", 9}}));
  EXPECT_EQ(verdict.outputs[0].warnings,
            std::vector<std::string>{"no value is defined for 9 of 378 elements"});
}

TEST(Judge, MostElementsWithoutAValueAreMistrusted) {
  for (int64_t undefined : {21, 22}) {  // of 42 rows
    const auto standing = [&](ExpectedTile& tile, const TileRequest&) {
      for (int64_t row = 0; row < tile.row_count; ++row) {
        tile.standing.push_back(tile.first_row + row < undefined ? Standing::kUndefined
                                                                 : Standing::kJudged);
      }
    };
    const Verdict verdict = JudgeValues(HashedValues(kRows), 0x1p-10, standing);
    EXPECT_EQ(verdict.outcome, undefined > 21 ? Outcome::kMistrusted : Outcome::kPass) << undefined;
  }
}

TEST(Judge, NothingJudgedIsMistrusted) {
  const auto none = [](ExpectedTile& tile, const TileRequest&) {
    tile.standing.assign(static_cast<size_t>(tile.row_count), Standing::kUnconstrained);
  };
  const Verdict verdict = JudgeValues(HashedValues(kRows), 0x1p-10, none);
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_FALSE(verdict.outputs[0].worst.has_value());
}

TEST(Judge, AnUnboundedRowIsMistrustedAndAFailureBeatsIt) {
  std::vector<double> got = HashedValues(kRows);
  const auto unbounded = [](ExpectedTile& tile, const TileRequest&) {
    tile.standing.assign(static_cast<size_t>(tile.row_count), Standing::kJudged);
    if (tile.first_row == 0) tile.standing[0] = Standing::kUnbounded;
  };
  EXPECT_EQ(JudgeValues(got, 0x1p-10, unbounded).outcome, Outcome::kMistrusted);
  got[300] += 1;
  EXPECT_EQ(JudgeValues(got, 0x1p-10, unbounded).outcome, Outcome::kFail);
}

TEST(Judge, AnInfiniteBoundProvesNothing) {
  const auto infinite = [](ExpectedTile& tile, const TileRequest&) {
    if (tile.first_row == 0) tile.bound[4] = kInfinity;
  };
  const Verdict verdict = JudgeValues(HashedValues(kRows), 0x1p-10, infinite);
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_EQ(verdict.outputs[0].counts.unbounded, 1);
}

TEST(Judge, IsVacuousWhenMoreThanHalfOfTheBoundsExceedATenthOfTheData) {
  // mass is 1 everywhere; 189 of 378 elements are half.
  const auto loose = [](size_t count) {
    return [count](ExpectedTile& tile, const TileRequest&) {
      for (size_t i = 0; i < tile.bound.size(); ++i) {
        const size_t element = static_cast<size_t>(tile.first_row) * 9 + i;
        tile.bound[i] = element < count ? std::nextafter(kVacuousShare, 1) : 0x1p-10;
      }
    };
  };
  EXPECT_EQ(JudgeValues(HashedValues(kRows), 0, loose(189)).outcome, Outcome::kPass);
  const Verdict verdict = JudgeValues(HashedValues(kRows), 0, loose(190));
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_NE(verdict.reasons[0].find("vacuous"), std::string::npos);
  EXPECT_EQ(JudgeValues(HashedValues(kRows), kVacuousShare).outcome, Outcome::kPass);
}

TEST(Judge, ReportsTheMeanDetectableShare) {
  const auto shares = [](ExpectedTile& tile, const TileRequest&) {
    tile.detectable_share = {tile.first_row == 0 ? 0.0 : 1.0};
  };
  const Verdict verdict = JudgeValues(HashedValues(kRows), 0x1p-10, shares);
  EXPECT_EQ(*verdict.outputs[0].detectable_share, 8.0 / 9);  // nine tiles
}

TEST(Judge, AsksForTermsOfTheWorstElementOnly) {
  OutputInfo info = AccuracyInfo(kRows);
  info.terms = {"score", "sum"};
  int with_terms = 0;
  const auto terms = [&](ExpectedTile& tile, const TileRequest& request) {
    if (!request.terms) return;
    ++with_terms;
    tile.terms = {std::vector<double>(tile.value.size(), 0x1p-12),
                  std::vector<double>(tile.value.size(), 0x1.8p-11)};
  };
  std::vector<double> got = HashedValues(kRows);
  got[200] += 0x1p-11;
  const Verdict verdict = JudgeValues(got, 0x1p-10, terms, DType::kFloat64, info);
  EXPECT_EQ(with_terms, 1);
  ASSERT_EQ(verdict.outputs[0].worst->terms.size(), 2u);
  EXPECT_EQ(verdict.outputs[0].worst->terms[0], (TermShare{"sum", 0x1.8p-11, 0.75}));
  EXPECT_EQ(verdict.outputs[0].worst->ratio, 0.5);
}

TEST(Judge, ABoundIsChargedForTheReferencesOwnError) {
  const auto own = [](ExpectedTile& tile, const TileRequest&) {
    tile.reference_bound.assign(tile.value.size(), 0x1p-21);  // 2^-11 of the bound
  };
  std::vector<double> got = HashedValues(kRows);
  got[7] += 0x1p-10 + 0x1p-21;
  const Verdict pass = JudgeValues(got, 0x1p-10, own);
  EXPECT_EQ(pass.outcome, Outcome::kPass);
  EXPECT_EQ(pass.outputs[0].counts.on_reference_bound, 1);
  got[7] += 0x1p-40;
  EXPECT_EQ(JudgeValues(got, 0x1p-10, own).outcome, Outcome::kFail);
}

// An output with a fault in direction 0 or 1 of two.
OutputInfo WithDirections() {
  OutputInfo info = AccuracyInfo(kRows);
  info.directions = {"scale", "missing"};
  info.hints = {"the scale is off", "a key is missing"};
  info.groups = {"b=0", "b=1"};
  return info;
}

double EffectAt(uint64_t direction, uint64_t element) { return Hashed(10 + direction, element); }

void FillStatistics(ExpectedTile& tile, const TileRequest& request) {
  const size_t rows = static_cast<size_t>(tile.row_count);
  const double sigma = 0x1p-12;
  tile.group.resize(rows);
  for (size_t r = 0; r < rows; ++r)
    tile.group[r] = tile.first_row + static_cast<int64_t>(r) < 21 ? 0 : 1;
  if (!request.statistics) return;
  TileStatistics statistics;
  statistics.sigma_squared.assign(tile.value.size(), sigma * sigma);
  statistics.gram_norm.assign(rows, 3);
  statistics.taken.assign(rows, 1);
  for (size_t r = 0; r < rows; ++r) {
    statistics.identity.push_back(static_cast<uint64_t>(tile.first_row) + r);
  }
  statistics.slack.assign(2, std::vector<double>(rows, 0));
  statistics.slack_squared.assign(rows, 0);
  for (uint64_t k = 0; k < 2; ++k) {
    std::vector<double> effect;
    std::vector<double> variance(rows, 0);
    for (size_t i = 0; i < tile.value.size(); ++i) {
      effect.push_back(EffectAt(k, static_cast<uint64_t>(tile.first_row) * 9 + i));
      variance[i / 9] += effect[i] * effect[i] / (sigma * sigma);
    }
    statistics.effect.push_back(effect);
    statistics.variance.push_back(variance);
    statistics.mean.emplace_back(rows, 0.0);
  }
  tile.statistics = std::move(statistics);
}

TEST(Judge, NamesTheFaultThatExplainsAFailure) {
  std::vector<double> got = HashedValues(kRows);
  for (size_t i = 0; i < got.size(); ++i) got[i] += 0.5 * EffectAt(1, i);
  const Verdict verdict =
      JudgeValues(got, 0x1p-10, FillStatistics, DType::kFloat64, WithDirections());
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  const OutputVerdict& out = verdict.outputs[0];
  ASSERT_EQ(out.fits.size(), 2u);
  EXPECT_EQ(out.fits[0].direction, "missing");
  // The fit of an exact multiple: rounding of at most 378 terms.
  EXPECT_NEAR(out.fits[0].coefficient, 0.5, 378 * 0x1p-50);
  EXPECT_NEAR(out.fits[0].explained_share, 1.0, 378 * 0x1p-50);
  EXPECT_EQ(out.hints, std::vector<std::string>{
                           "looks as if a key is missing (0.5 times, 100 % of the error)"});
}

TEST(Judge, NamesNoFaultForNoise) {
  std::vector<double> got = HashedValues(kRows);
  for (size_t i = 0; i < got.size(); ++i) got[i] += Hashed(99, i);
  const Verdict verdict =
      JudgeValues(got, 0x1p-10, FillStatistics, DType::kFloat64, WithDirections());
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_TRUE(verdict.outputs[0].hints.empty());
}

TEST(Judge, OneFailingElementIsNoEvidenceForADirection) {
  EXPECT_FALSE(IsExplained(1.0, 1, 1));
  EXPECT_FALSE(IsExplained(0.6, 9, 2));
  EXPECT_TRUE(IsExplained(0.999999, 9, 2));
  // 2 (1/2)^((N-1)/2) <= 1e-6 from N = 43 on.
  EXPECT_FALSE(IsExplained(std::nextafter(0.5, 1), 42, 2));
  EXPECT_TRUE(IsExplained(std::nextafter(0.5, 1), 43, 2));
  EXPECT_FALSE(IsExplained(0.5, 1000, 2));
}

TEST(Judge, StatisticsDecideUnlessTheBoundAloneIsAsked) {
  std::vector<double> got = HashedValues(kRows);
  // Far below the bound, and one direction everywhere: 2^-12 is sigma.
  for (size_t i = 0; i < got.size(); ++i) got[i] += 0x1p-12 * EffectAt(0, i);
  JudgeOptions options;
  for (const Rule rule : {Rule::kBound, Rule::kNoise}) {
    options.rule = rule;
    const Verdict verdict =
        JudgeValues(got, 0x1p-10, FillStatistics, DType::kFloat64, WithDirections(), options);
    EXPECT_EQ(verdict.outcome, Outcome::kPass);
    EXPECT_FALSE(verdict.outputs[0].statistics.has_value());
  }
  const Verdict verdict =
      JudgeValues(got, 0x1p-10, FillStatistics, DType::kFloat64, WithDirections());
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  const OutputVerdict& output = verdict.outputs[0];
  EXPECT_EQ(output.counts.failed, 0);
  ASSERT_TRUE(output.statistics.has_value());
  EXPECT_EQ(output.statistics->tests, 8);  // 2 groups x (2 directions + 1), 2 of all
  ASSERT_FALSE(output.reasons.empty());
  EXPECT_NE(output.reasons[0].find("by statistics: "), std::string::npos);
  EXPECT_NE(output.reasons[0].find("errors along 'scale'"), std::string::npos);
  EXPECT_NE(output.reasons[0].find("once in 1e12 cases"), std::string::npos);
}

// A list of faults that must be seen is not met by rows that were never looked at for them.
TEST(Judge, AnOutputWithoutStatisticsIsBlindToAllOfThem) {
  const std::vector<double> got = HashedValues(kRows);
  JudgeOptions options;
  const Verdict lax = JudgeValues(got, 0x1p-10, {}, DType::kFloat64, WithDirections(), options);
  EXPECT_EQ(lax.outcome, Outcome::kPass);
  ASSERT_TRUE(lax.outputs[0].statistics.has_value());
  EXPECT_EQ(lax.outputs[0].statistics->blind_to.size(), WithDirections().directions.size());
  options.must_see = {WithDirections().directions[0]};
  EXPECT_EQ(JudgeValues(got, 0x1p-10, {}, DType::kFloat64, WithDirections(), options).outcome,
            Outcome::kMistrusted);
}

TEST(Judge, VerdictsDoNotDependOnThreads) {
  std::vector<double> got = HashedValues(kRows);
  for (size_t i = 0; i < got.size(); ++i) got[i] += 0x1p-11 * Hashed(20, i);
  for (size_t i = 63; i < 126; i += 2) got[i] += 0.25;
  got[7] = kInfinity;
  OutputInfo info = WithDirections();
  info.reasons = {"overflow"};
  info.terms = {"all"};
  const auto parts = [](ExpectedTile& tile, const TileRequest& request) {
    FillStatistics(tile, request);
    if (tile.first_row == 0) tile.alternatives = {{7, kInfinity, false, 0}};
    if (request.terms) tile.terms = {tile.bound};
  };
  JudgeOptions options;
  const Verdict one = JudgeValues(got, 0x1p-10, parts, DType::kFloat64, info, options);
  EXPECT_EQ(one.outcome, Outcome::kFail);
  EXPECT_EQ(one.outputs[0].counts.failed, 32);
  for (const int threads : {2, 7}) {
    for (int repeat = 0; repeat < 10; ++repeat) {
      options.threads = threads;
      EXPECT_TRUE(JudgeValues(got, 0x1p-10, parts, DType::kFloat64, info, options) == one);
    }
  }
}

TEST(Judge, AnErrorOnAThreadReachesTheCaller) {
  const auto broken = [](ExpectedTile& tile, const TileRequest&) {
    if (tile.first_row == 20) throw Error(ErrorCode::kMissingData, "no such key");
  };
  for (const int threads : {1, 7}) {
    JudgeOptions options;
    options.threads = threads;
    EXPECT_THROW(JudgeValues(HashedValues(kRows), 0x1p-10, broken, DType::kFloat64,
                             AccuracyInfo(kRows), options),
                 Error);
  }
}

TEST(Judge, SkipsTheTilesOfAnOutputThatIsMissing) {
  const FakeSource source(AccuracyInfo(kRows), 5, [](ExpectedTile&, const TileRequest&) {});
  const Verdict verdict = Judge(source, MemorySink(TensorMap{}));
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(source.asked(Precision::kDouble), 0);
}

TEST(JudgeDeathTest, ATileThatDoesNotFillItsRowsIsOurBug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto short_bound = [](ExpectedTile& tile, const TileRequest&) { tile.bound.pop_back(); };
  EXPECT_DEATH(JudgeValues(HashedValues(kRows), 0x1p-10, short_bound), "bound per element");
}

TEST(OrderedParallelFor, MergesInOrderAndKeepsFewResults) {
  for (const int threads : {1, 2, 7}) {
    std::vector<int64_t> order;
    OrderedParallelFor(
        129, threads,
        [](int64_t i) {
          // Later results are ready first.
          if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return i * i;
        },
        [&](int64_t i, int64_t square) {
          EXPECT_EQ(square, i * i);
          order.push_back(i);
        });
    ASSERT_EQ(order.size(), 129u);
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int64_t>(i));
  }
}

// The numbers of the threads of this process (Linux).
std::set<std::string> ThreadsOfThisProcess() {
  std::set<std::string> numbers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    numbers.insert(entry.path().filename().string());
  }
  return numbers;
}

// A thread that is done early would be given two shares of the loop: each waits here for all
// others.
int64_t SumBy(int threads) {
  int64_t sum = 0;
  std::latch all_run(threads);
  OrderedParallelFor(
      129, threads,
      [&](int64_t i) {
        if (i < threads) all_run.arrive_and_wait();
        return i;
      },
      [&](int64_t, int64_t value) { sum += value; });
  return sum;
}

TEST(OrderedParallelFor, KeepsItsThreadsForTheNextLoop) {
  SumBy(5);
  const std::set<std::string> after_one = ThreadsOfThisProcess();
  EXPECT_GE(after_one.size(), 5u);  // other tests may have left more
  for (int i = 0; i < 50; ++i) EXPECT_EQ(SumBy(5), 129 * 128 / 2);
  EXPECT_EQ(ThreadsOfThisProcess(), after_one);
}

// A loop inside of a loop has threads of its own, as many as it asks for.
TEST(OrderedParallelFor, MayBeNested) {
  std::vector<int64_t> sums;
  OrderedParallelFor(
      7, 3, [](int64_t) { return SumBy(2); }, [&](int64_t, int64_t sum) { sums.push_back(sum); });
  EXPECT_EQ(sums, std::vector<int64_t>(7, 129 * 128 / 2));
}

TEST(OrderedParallelFor, AForkedChildHasThreadsOfItsOwn) {
#if KVCHECK_UNDER_THREAD_SANITIZER
  GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads, forked where there were some";
#endif
  SumBy(4);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(SumBy(4) == 129 * 128 / 2 && ThreadsOfThisProcess().size() == 4 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// A busy machine may refuse threads: the work is done by those that there are.
TEST(OrderedParallelFor, DoesItsWorkWithoutTheThreadsThatCannotBeMade) {
  pthread_attr_t own;
  pthread_attr_t greedy;
  ASSERT_EQ(pthread_getattr_default_np(&own), 0);
  ASSERT_EQ(pthread_attr_init(&greedy), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&greedy, size_t{1} << 48), 0);  // beyond all addresses
  ASSERT_EQ(pthread_setattr_default_np(&greedy), 0);
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  int64_t sum = 0;
  OrderedParallelFor(
      129, 4, [](int64_t i) { return i; }, [&](int64_t, int64_t value) { sum += value; });
  EXPECT_EQ(sum, 129 * 128 / 2);
  ASSERT_EQ(pthread_setattr_default_np(&own), 0);
  pthread_attr_destroy(&own);
  pthread_attr_destroy(&greedy);
}

}  // namespace
}  // namespace kvcheck
