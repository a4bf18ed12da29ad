// Cases whose requests are sent before earlier ones are answered: everything that is reported is
// what it is one call at a time, of honest children and of others.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/draw_trace.h"
#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"
#include "tests/tools/process/child_time.h"
#include "tools/process/remote_cache.h"
#include "tools/process/remote_process.h"
#include "tools/process/requests_ahead.h"

namespace kvcheck {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHour = std::chrono::hours(1);
constexpr milliseconds kLong = std::chrono::hours(1000);  // no limit: ctest ends what hangs

const std::string kFourAppends =
    "cache k=f32 dk=8 observe=last data=tokens:1; new A; append A 1; append A 2; trim A 1; "
    "append A 1; append A 3; copy A -> B";

// What is told of a run, losses included.
struct Told {
  std::string outcome;
  int64_t operation = -1;
  std::string reason;
  std::vector<int64_t> counts;
  int64_t processes = 0;
  bool operator==(const Told&) const = default;
};

void PrintTo(const Told& told, std::ostream* out) {
  *out << told.outcome << " at " << told.operation << ": " << told.reason << ", "
       << testing::PrintToString(told.counts) << ", " << told.processes << " processes";
}

Told ResultOf(const TraceResult& result) {
  Told told;
  told.outcome = std::string(Name(result.outcome));
  told.operation = result.operation;
  told.reason = result.reason;
  const TraceCounts& counts = result.counts;
  told.counts = {counts.operations, counts.idle,   counts.refusals,   counts.states,
                 counts.outputs,    counts.tokens, counts.unsupported};
  told.counts.insert(told.counts.end(), counts.by_kind.begin(), counts.by_kind.end());
  told.counts.insert(told.counts.end(), result.probes.begin(), result.probes.end());
  return told;
}

class Asked {
 public:
  explicit Asked(const std::string& kind, milliseconds limit = kLong)
      : factory_(std::make_shared<RemoteProcess>(
            std::vector<std::string>{KVCHECK_HOSTILE_CHILD, kind}, RemoteLimits{limit, kLong})),
        runner_(&factory_, factory_.OwnStore()) {}

  Told Run(const CacheCase& c, bool ahead) {
    TraceOptions options;
    options.send_ahead = ahead;
    int64_t operation = -1;
    options.on_operation = [&](int64_t index) { operation = index; };
    const int64_t before = factory_.process().epoch();
    Told told;
    try {
      told = ResultOf(runner_.Run(c, options));
    } catch (const RemoteLoss& loss) {
      told.outcome = loss.Signature();
      told.operation = operation;
      told.reason = loss.reason();
    }
    told.processes = factory_.process().epoch() - before;
    return told;
  }
  int64_t processes() { return factory_.process().epoch(); }

 private:
  RemoteCacheFactory factory_;
  TraceRunner runner_;
};

Told OneByOne(const std::string& kind, const std::string& text, milliseconds limit = kLong) {
  return Asked(kind, limit).Run(ParseCacheCase(text), false);
}

Told Ahead(const std::string& kind, const std::string& text, milliseconds limit = kLong) {
  return Asked(kind, limit).Run(ParseCacheCase(text), true);
}

TEST(SentAhead, WhatAnswersFourAtATimeIsNotWaitedFor) {
  // start, new, four appends, trim: with the copy and the look at the end it has eight to answer.
  const std::string eight =
      "cache k=f32 dk=8 observe=last data=tokens:1; new A; append A 1; append A 2; append A 1; "
      "trim A 1; copy A -> B";
  EXPECT_EQ(Ahead("answers_four_at_a_time", eight).outcome, "PASS");
  // What is asked one by one is never answered.
  const SharedChildTime time(testing::TempDir());
  EXPECT_EQ(OneByOne("answers_four_at_a_time", eight, kHour).outcome, "start TIMED_OUT");
}

TEST(SentAhead, DrawnTracesGiveWhatTheyGiveOneByOne) {
  for (const char* kind : {"honest", "declines_copy", "refuses_trim"}) {
    Asked ahead(kind);
    Asked one_by_one(kind);
    TraceDrawer drawer;
    for (uint64_t i = 0; i < 400; ++i) {
      const CacheCase c = drawer.Draw(7, i);
      const Told told = one_by_one.Run(c, false);
      EXPECT_EQ(ahead.Run(c, true), told) << kind << ": " << Print(c);
      if (std::string(kind) != "honest") continue;
      ModelFactory model;
      // The model states another plan of attention than the child.
      EXPECT_EQ(told.counts, ResultOf(TraceRunner(&model).Run(c)).counts) << Print(c);
    }
    EXPECT_EQ(ahead.processes(), 1) << kind;
  }
}

TEST(SentAhead, ALossIsOfTheOperationThatItHappensIn) {
  for (const char* kind : {"exit_0", "exit_3", "signal", "exit_within_frame", "failed",
                           "garbage_length", "prints_text", "no_messagepack", "two_answers",
                           "refused_no_text", "grandchild_keeps_pipes"}) {
    for (const char* at : {"at_1:", "at_3:", "at_4:"}) {
      const std::string where = std::string(at) + kind;
      const Told told = OneByOne(where, kFourAppends);
      EXPECT_TRUE(told.outcome.starts_with("append ")) << where << ": " << told.outcome;
      Told ahead = Ahead(where, kFourAppends);
      // What broke the protocol is asked again, in a process of its own.
      if (told.outcome == "append PROTOCOL") --ahead.processes;
      EXPECT_EQ(ahead, told) << where;
    }
  }
}

TEST(SentAhead, AHangIsOfTheOperationThatHangs) {
  const SharedChildTime time(testing::TempDir());
  for (const char* kind : {"at_3:hang", "at_3:half_header", "at_3:half_frame"}) {
    const Told told = Ahead(kind, kFourAppends, kHour);
    EXPECT_EQ(told.outcome, "append TIMED_OUT") << kind;
    EXPECT_EQ(told.operation, 4) << kind;
  }
}

// A word of the protocol says that a result does not fit together, and no words of its sentence.
TEST(SentAhead, AMisfitIsNoRefusal) {
  for (const auto& [kind, reason] :
       {std::pair("misfit_of_mask",
                  "the call returned a mask that does not fit the K and V that it returned: odd"),
        {"misfit_of_values", "the call returned K and V that do not fit each other: odd"},
        {"refuses_in_words_of_a_mask", "a legal call was refused: the mask covers "}}) {
    const Told told = OneByOne(std::string("at_2:") + kind, kFourAppends);
    EXPECT_EQ(told.outcome, "FAIL") << kind;
    EXPECT_EQ(told.reason, std::string("operation 3, append A 2: ") + reason);
    EXPECT_EQ(told.operation, 2);
    EXPECT_EQ(Ahead(std::string("at_2:") + kind, kFourAppends), told) << kind;
  }
  EXPECT_EQ(OneByOne("misfit_of_nothing", kFourAppends).outcome, "append PROTOCOL");
}

TEST(SentAhead, WhatIsDeclinedInBetweenIsJudgedAsOneByOne) {
  const Told told = OneByOne("at_2:declines_append", kFourAppends);
  EXPECT_EQ(told.outcome, "PASS");
  EXPECT_EQ(Ahead("at_2:declines_append", kFourAppends), told);
}

TEST(SentAhead, TheNextCaseIsNotTouchedByAnswersThatNobodyWaitedFor) {
  Asked asked("refuses_trim");
  const CacheCase failing = ParseCacheCase(kFourAppends);
  const CacheCase passing = ParseCacheCase("cache k=f32 dk=8 data=tokens:1; new A; append A 2");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(asked.Run(failing, true).outcome, "FAIL");
    EXPECT_EQ(asked.Run(passing, true).outcome, "PASS");
    EXPECT_EQ(asked.Run(passing, false).outcome, "PASS");
  }
  EXPECT_EQ(asked.processes(), 1);
}

std::vector<std::byte> FrameOf(size_t size) { return std::vector<std::byte>(size, std::byte{7}); }

TEST(SentAhead, SoManyAreOnTheirWayAndNoMore) {
  RequestsAhead ahead;
  const std::vector<std::byte> frame = FrameOf(10);
  const size_t count = 2 * RequestsAhead::kMostUnanswered;
  for (size_t i = 0; i < count; ++i) ahead.Add(frame);
  EXPECT_EQ(ahead.Send().size(), 10 * RequestsAhead::kMostUnanswered);
  EXPECT_TRUE(ahead.Send().empty());
  size_t sent = RequestsAhead::kMostUnanswered;
  for (size_t i = 0; i < count; ++i) {
    ASSERT_TRUE(ahead.Any());
    EXPECT_TRUE(ahead.IsNext(frame));
    EXPECT_FALSE(ahead.IsNext(FrameOf(9)));
    EXPECT_FALSE(ahead.IsNext(std::vector<std::byte>(10)));
    sent += ahead.Send().size() / 10;
    EXPECT_GT(ahead.Unanswered(), 0u);
    EXPECT_LE(ahead.Unanswered(), RequestsAhead::kMostUnanswered);
    ahead.Take();
  }
  EXPECT_EQ(sent, count);
  EXPECT_FALSE(ahead.Any());
}

}  // namespace
}  // namespace kvcheck
