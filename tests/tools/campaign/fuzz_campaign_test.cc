// Campaigns over a subject that fails, crashes and hangs where the test says.

#include "tools/campaign/fuzz_campaign.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/process/child_time.h"

namespace kvcheck {
namespace {

// Cases are codec cases whose number of rows is index + 1; what goes wrong follows from rows alone.
int64_t RowsOf(const CaseEntry& entry) { return std::get<CodecCase>(entry.c).rows; }

// Stands still but for what hangs; of the test that runs.
ChildTime* time_of_workers = nullptr;

class FuzzCampaign : public testing::Test {
 protected:
  FuzzCampaign() {
    time_.Count();
    time_of_workers = &time_;
  }
  ~FuzzCampaign() override { time_of_workers = nullptr; }

 private:
  ChildTime time_;
};

class FakeJudge : public CaseJudge {
 public:
  FakeJudge(int64_t period, bool hangs) : period_(period), hangs_(hangs) {}

  JudgedCase Judge(const CaseEntry& entry, ItemMark& mark, CaseCounts* counts) override {
    const int64_t rows = RowsOf(entry);
    counts->operations += rows;
    counts->probes.resize(2);
    counts->probes[static_cast<size_t>(rows % 2)] += 1;
    counts->declined.resize(2);
    counts->declined[1] += rows % 3 == 0 ? 2 : 0;
    mark.StartStep(rows % 5);
    if (rows < 20 || period_ == 0) return {};
    if (rows % period_ == 1) return {Outcome::kFail, "even wrong", "rows " + std::to_string(rows)};
    if (rows % period_ == 2) abort();
    if (hangs_ && rows % period_ == 3 && rows < 100) {
      time_of_workers->Hang();
      volatile unsigned turns = 0;
      while (true) turns = turns + 1;
    }
    if (rows % period_ == 4) throw std::runtime_error("thrown");
    if (rows % period_ == 5) return {Outcome::kMistrusted, "MISTRUSTED", "nothing proved"};
    return {};
  }
  Verdict Explain(const CaseEntry&, ItemMark&, std::string*) override { return {}; }

 private:
  int64_t period_;
  bool hangs_;
};

class FakeSubject : public Subject {
 public:
  explicit FakeSubject(int64_t period, bool hangs = false) : period_(period), hangs_(hangs) {}
  std::string Kind() const override { return "codec"; }
  std::string Implementation() const override { return "fake"; }
  std::string Version() const override { return "7"; }
  std::vector<std::string> ProbeNames() const override { return {"even", "odd"}; }
  CaseEntry Draw(int64_t index) const override {
    CodecCase c;
    c.format = PlainFormat{DType::kFloat16};
    c.rows = index + 1;
    c.head_dim = 4;
    c.data = {"gauss", 1, ""};
    CaseEntry entry;
    entry.c = c;
    return entry;
  }
  std::string Origin(int64_t index) const override { return "case " + std::to_string(index); }
  std::unique_ptr<CaseJudge> MakeJudge(std::chrono::milliseconds) const override {
    return std::make_unique<FakeJudge>(period_, hangs_);
  }
  std::string StepName(const CaseEntry&, int64_t step) const override {
    return "step" + std::to_string(step);
  }
  std::string SizeOf(const CaseEntry&) const override { return ""; }
  ShrunkEntry Shrink(const CaseEntry& entry, const StillFails& still_fails,
                     int64_t max_runs) const override {
    return ShrinkEntry(entry, still_fails, max_runs);
  }
  std::string Command(const CaseEntry&) const override { return ""; }

 private:
  int64_t period_;
  bool hangs_;
};

// Fails one case, and that once.
class OnceJudge : public FakeJudge {
 public:
  explicit OnceJudge(std::string mark) : FakeJudge(0, false), mark_(std::move(mark)) {}
  JudgedCase Judge(const CaseEntry& entry, ItemMark& item, CaseCounts* counts) override {
    if (RowsOf(entry) == 7) {
      const int file = open(mark_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
      if (file >= 0) {
        close(file);
        return {Outcome::kFail, "seven", "it was the first time"};
      }
    }
    return FakeJudge::Judge(entry, item, counts);
  }

 private:
  std::string mark_;
};

class OnceSubject : public FakeSubject {
 public:
  explicit OnceSubject(std::string mark) : FakeSubject(0), mark_(std::move(mark)) {}
  std::unique_ptr<CaseJudge> MakeJudge(std::chrono::milliseconds) const override {
    return std::make_unique<OnceJudge>(mark_);
  }

 private:
  std::string mark_;
};

CampaignOptions Options(int64_t cases, int workers) {
  CampaignOptions options;
  options.cases = cases;
  options.workers = workers;
  options.keep_going = true;
  options.since_progress = std::chrono::hours(1);
  options.shrink_time = std::chrono::hours(1000);
  options.largest_batch = 16;
  return options;
}

CaseEntry RotatedEntry() {
  CaseEntry entry;
  entry.c = ParseCase(
      "attention hq=2 hkv=1 l=3 t=9 d=64 q=f32 k=turboquant:4:g64:f32 v=f32 out=f32 data=gauss:1");
  entry.plan = "p=f32 dequantize=rotated:2";
  return entry;
}

// As a judge would have it, with plans that contradict the case.
bool IsLegal(const CaseEntry& entry) {
  const auto& c = std::get<AttentionCase>(entry.c);
  return !IsPlain(c.k) || !IsPlain(c.v) || entry.plan.find("rotated") == std::string::npos;
}

TEST(ShrinkEntry, LeavesTheBasisOfStorageFirst) {
  const ShrunkEntry shrunk = ShrinkEntry(RotatedEntry(), IsLegal, 1000);
  EXPECT_TRUE(shrunk.complete);
  EXPECT_EQ(shrunk.entry.plan, "p=f32 dequantize=stored");
  EXPECT_EQ(Print(shrunk.entry.c),
            "attention b=1 hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 mask=none scale=0.125 "
            "data=gauss:1");
}

TEST(ShrinkEntry, KeepsTheBasisOfStorageWhereTheFailureNeedsIt) {
  const auto fails = [](const CaseEntry& entry) {
    return IsLegal(entry) && entry.plan.find("rotated") != std::string::npos;
  };
  const ShrunkEntry shrunk = ShrinkEntry(RotatedEntry(), fails, 1000);
  EXPECT_EQ(shrunk.entry.plan, RotatedEntry().plan);
  const auto& c = std::get<AttentionCase>(shrunk.entry.c);
  EXPECT_EQ(c.kv_len, 1);
  EXPECT_FALSE(IsPlain(c.k));
  // What the plan takes is of the same budget.
  const ShrunkEntry few = ShrinkEntry(RotatedEntry(), fails, 3);
  EXPECT_EQ(few.runs, 3);
  EXPECT_FALSE(few.complete);
}

TEST_F(FuzzCampaign, SaysOfAFailureThatItDidNotComeAgain) {
  const std::string mark = testing::TempDir() + "once." + std::to_string(getpid());
  const CampaignResult once = RunCampaign(OnceSubject(mark), Options(20, 1));
  std::filesystem::remove(mark);
  ASSERT_EQ(once.failures.size(), 1U);
  EXPECT_FALSE(once.failures[0].repeats);
  const CampaignResult always = RunCampaign(FakeSubject(50), Options(120, 1));
  ASSERT_FALSE(always.failures.empty());
  for (const FoundFailure& failure : always.failures) {
    EXPECT_TRUE(failure.repeats) << failure.sum.signature;
  }
}

TEST_F(FuzzCampaign, CountsAndFailuresDoNotDependOnWorkersOrBatches) {
  const FakeSubject subject(50, /*hangs=*/true);
  const CampaignResult one = RunCampaign(subject, Options(120, 1));
  EXPECT_EQ(one.tally.cases, 120);
  EXPECT_EQ(one.tally.failed, 7);
  EXPECT_EQ(one.tally.crashed, 4);
  EXPECT_EQ(one.tally.timed_out, 1);
  EXPECT_EQ(one.tally.mistrusted, 2);
  EXPECT_EQ(one.tally.passed, 111);
  CampaignOptions other = Options(120, 3);
  other.largest_batch = 7;
  const CampaignResult three = RunCampaign(subject, other);
  EXPECT_EQ(one.tally, three.tally);
  ASSERT_EQ(one.failures.size(), three.failures.size());
  for (size_t i = 0; i < one.failures.size(); ++i) {
    EXPECT_EQ(Print(one.failures[i].shrunk), Print(three.failures[i].shrunk));
    EXPECT_EQ(one.failures[i].reason, three.failures[i].reason);
    EXPECT_EQ(one.failures[i].runs, three.failures[i].runs);
  }
}

TEST_F(FuzzCampaign, DeclinedStepsAreCountedOverAllWorkers) {
  for (const int workers : {1, 3}) {
    const CampaignResult result = RunCampaign(FakeSubject(0), Options(120, workers));
    EXPECT_EQ(result.tally.passed, 120);
    EXPECT_EQ(result.tally.counts.declined, (std::vector<int64_t>{0, 80}));
  }
}

TEST_F(FuzzCampaign, EachFailureIsShrunkInItsOwnWay) {
  const CampaignResult result = RunCampaign(FakeSubject(50, /*hangs=*/true), Options(60, 2));
  // Rows 51 to 54; the least rows from 20 on of the same kind are the same. Only data shrink.
  ASSERT_EQ(result.failures.size(), 4u);
  EXPECT_EQ(result.failures[0].sum.signature, "even wrong");
  EXPECT_EQ(result.failures[0].sum.first_case, 50);
  EXPECT_EQ(result.failures[1].sum.signature, "step2 CRASHED");
  EXPECT_EQ(result.failures[2].sum.signature, "step3 TIMED_OUT");
  EXPECT_EQ(result.failures[3].sum.signature, "step4 CRASHED");
  EXPECT_EQ(result.failures[3].reason, "threw: thrown");
  for (const FoundFailure& failure : result.failures) {
    EXPECT_TRUE(failure.shrunk_whole) << failure.sum.signature;
    EXPECT_EQ(std::get<CodecCase>(failure.shrunk.c).head_dim, 1) << failure.sum.signature;
    EXPECT_EQ(RowsOf(failure.shrunk), RowsOf(failure.drawn));
    EXPECT_EQ(failure.shrunk.implementation, "fake");
    EXPECT_NE(failure.shrunk.reason.find("case 5"), std::string::npos);
  }
}

// One signature and two causes: one of rows in groups, which is rare, and one of plain rows.
class TwoCauses : public FakeSubject {
 public:
  TwoCauses() : FakeSubject(0) {}
  CaseEntry Draw(int64_t index) const override {
    CaseEntry entry = FakeSubject::Draw(index);
    auto& c = std::get<CodecCase>(entry.c);
    c.rows = 7;
    c.head_dim = 32;
    if (index % 20 == 13) c.format = AffineFormat{4, 32, DType::kFloat16};
    return entry;
  }
  std::unique_ptr<CaseJudge> MakeJudge(std::chrono::milliseconds) const override {
    class Fails : public CaseJudge {
      JudgedCase Judge(const CaseEntry&, ItemMark&, CaseCounts* counts) override {
        counts->probes.resize(2);
        return {Outcome::kFail, "one signature", "broken"};
      }
      Verdict Explain(const CaseEntry&, ItemMark&, std::string*) override { return {}; }
    };
    return std::make_unique<Fails>();
  }
};

TEST_F(FuzzCampaign, CasesOfOneSignatureAreToldApartByWhatTheyShrinkTo) {
  CampaignOptions options = Options(100, 2);
  EXPECT_EQ(RunCampaign(TwoCauses(), options).failures.size(), 1u);
  options.shrink_cases = 4;
  const CampaignResult apart = RunCampaign(TwoCauses(), options);
  ASSERT_EQ(apart.failures.size(), 2u);
  EXPECT_EQ(apart.failures[0].form, "codec round_trip plain rows=1");
  EXPECT_EQ(apart.failures[1].form, "codec round_trip affine:4 rows=1");
  EXPECT_EQ(apart.failures[0].looked_at, 4);
  // Of each group in turn.
  EXPECT_EQ(apart.failures[0].of_this_form, 2);
  EXPECT_EQ(apart.failures[1].of_this_form, 2);
  EXPECT_EQ(apart.failures[1].index, 13);
}

// The rare cause is found behind a common one that is known.
TEST_F(FuzzCampaign, WhatCannotBeKnownIsShrunkFirst) {
  CampaignOptions options = Options(100, 2);
  const KnownFailures known(
      "signature=\"one signature\" impl=fake version=7 reason=r expires=2999-12-31\n  trace " +
          Print(TwoCauses().Draw(0).c) + "\n",
      "known.txt");
  const KnownCauses causes(known, "fake", "7", "2026-01-01");
  options.causes = &causes;
  EXPECT_EQ(RunCampaign(TwoCauses(), options).failures[0].index, 0);
  options.shrink_cases = 2;
  const CampaignResult result = RunCampaign(TwoCauses(), options);
  ASSERT_EQ(result.failures.size(), 2u);
  EXPECT_EQ(result.failures[0].index, 13);
  EXPECT_EQ(causes.Find("one signature", result.failures[0].form), nullptr);
  // What is known as it was drawn is not shrunk.
  EXPECT_NE(causes.Find("one signature", result.failures[1].form), nullptr);
  EXPECT_EQ(result.failures[1].runs, 0);
  EXPECT_GT(result.failures[0].runs, 0);
}

TEST_F(FuzzCampaign, WithoutKeepGoingItEndsAtTheFirstFailureInOrder) {
  for (const int workers : {1, 4}) {
    CampaignOptions options = Options(100'000, workers);
    options.keep_going = false;
    const CampaignResult result = RunCampaign(FakeSubject(50), options);
    EXPECT_EQ(result.tally.cases, 51);
    ASSERT_EQ(result.failures.size(), 1u);
    EXPECT_EQ(result.failures[0].sum.first_case, 50);
    EXPECT_EQ(result.tally.counts.operations, 51 * 52 / 2);
  }
}

TEST_F(FuzzCampaign, ShardsPartTheSequence) {
  FuzzTally all;
  std::vector<int64_t> firsts;
  for (int64_t shard = 0; shard < 3; ++shard) {
    CampaignOptions options = Options(40, 1);
    options.stride = 3;
    options.offset = shard;
    const CampaignResult result = RunCampaign(FakeSubject(50), options);
    EXPECT_EQ(result.tally.cases, 40);
    for (const FoundFailure& failure : result.failures) firsts.push_back(failure.sum.first_case);
    all.Add(result.tally);
  }
  const CampaignResult whole = RunCampaign(FakeSubject(50), Options(120, 1));
  EXPECT_EQ(all.failed, whole.tally.failed);
  EXPECT_EQ(all.counts, whole.tally.counts);
}

TEST_F(FuzzCampaign, TimeRunsAPrefixOfTheSequence) {
  CampaignOptions options = Options(-1, 2);
  options.time = std::chrono::milliseconds(300);
  CampaignResult timed = RunCampaign(FakeSubject(0), options);
  // A machine that came to no case in that time gets more.
  while (timed.tally.cases == 0) {
    *options.time *= 2;
    timed = RunCampaign(FakeSubject(0), options);
  }
  EXPECT_EQ(timed.tally, RunCampaign(FakeSubject(0), Options(timed.tally.cases, 1)).tally);
}

TEST_F(FuzzCampaign, InterruptGivesWhatWasDelivered) {
  CampaignOptions options = Options(-1, 2);
  options.time = std::chrono::minutes(5);
  int64_t seen = 0;
  options.progress = [&](const FuzzTally& tally) { seen = tally.cases; };
  options.interrupted = [&] { return seen > 100; };
  const CampaignResult result = RunCampaign(FakeSubject(0), options);
  EXPECT_TRUE(result.interrupted);
  EXPECT_GT(result.tally.cases, 100);
}

}  // namespace
}  // namespace kvcheck
