// A pool of workers that crash, hang, throw and send nonsense: each costs exactly the item in
// flight, answers come in the order of the items, and nothing depends on the number of workers.

#include "tools/campaign/process_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/tools/process/child_time.h"
#include "tools/process/message_codec.h"

namespace kvcheck {
namespace {

[[noreturn]] void Loop() {
  volatile unsigned turns = 0;
  while (true) turns = turns + 1;
}

struct Lost {
  int64_t item = 0;
  Outcome outcome = Outcome::kPass;
  int64_t step = 0;
  std::string reason;
  bool operator==(const Lost&) const = default;
};

struct Seen {
  std::vector<int64_t> answered;  // items, in the order of delivery
  std::vector<Lost> lost;
  int64_t delivered = 0;
  int64_t replaced = 0;
  bool operator==(const Seen&) const = default;
};

using Item = std::function<void(int64_t, ItemMark&)>;
using TimedItem = std::function<void(int64_t, ItemMark&, ChildTime&)>;

// Evaluates items; each answer lists the items of its batch.
// Time stands still but for items that say otherwise.
Seen RunItems(PoolOptions options, const TimedItem& timed_item, int64_t stop_after = -1) {
  ChildTime time;
  time.Count();
  const auto item = [&](int64_t i, ItemMark& mark) { timed_item(i, mark, time); };
  options.limits.since_progress = std::chrono::hours(1);
  ProcessPool pool(options, [&]() -> EvaluateBatch {
    return [&](const Batch& batch, ItemMark& mark) {
      MessageEncoder encoder;
      for (int64_t i = batch.first; i < batch.end(); ++i) {
        mark.StartItem(i);
        item(i, mark);
        encoder.Integer(i);
      }
      return encoder.message();
    };
  });
  pool.is_sound = [](const Message& message) { return message.size() % 8 == 0; };
  Seen seen;
  int64_t next = 0;
  pool.deliver = [&](const BatchAnswer& answer) {
    EXPECT_EQ(answer.batch.first, next) << "out of order";
    next = answer.batch.end();
    if (answer.IsLost()) {
      EXPECT_EQ(answer.batch.count, 1);
      seen.lost.push_back({answer.batch.first, answer.outcome, answer.step, answer.reason});
    } else {
      MessageDecoder decoder(answer.answer);
      for (int64_t i = answer.batch.first; i < answer.batch.end(); ++i) {
        EXPECT_EQ(decoder.Integer(), i);
        seen.answered.push_back(i);
      }
    }
    return stop_after < 0 || next < stop_after;
  };
  seen.delivered = pool.Run();
  seen.replaced = pool.replaced();
  return seen;
}

Seen RunItems(const PoolOptions& options, const Item& item, int64_t stop_after = -1) {
  return RunItems(options, TimedItem([&](int64_t i, ItemMark& mark, ChildTime&) { item(i, mark); }),
                  stop_after);
}

PoolOptions Options(int workers, int64_t items, int64_t largest_batch) {
  PoolOptions options;
  options.workers = workers;
  options.items = items;
  options.largest_batch = largest_batch;
  return options;
}

std::vector<int64_t> AllBut(int64_t items, const std::set<int64_t>& missing) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < items; ++i) {
    if (!missing.contains(i)) all.push_back(i);
  }
  return all;
}

class ProcessPoolTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) << "a process is left";
  }
};

TEST_F(ProcessPoolTest, DeliversEveryItemOnceInOrder) {
  for (const int workers : {1, 2, 5}) {
    for (const int64_t items : {0, 1, 2, 129, 1000}) {
      const Seen seen = RunItems(Options(workers, items, 32), [](int64_t, ItemMark&) {});
      EXPECT_EQ(seen.answered, AllBut(items, {})) << workers << " workers";
      EXPECT_EQ(seen.delivered, items);
      EXPECT_TRUE(seen.lost.empty());
      EXPECT_EQ(seen.replaced, 0);
    }
  }
}

TEST_F(ProcessPoolTest, CrashIsTheOutcomeOfTheItemInFlight) {
  const std::set<int64_t> bad = {0, 17, 18, 199};
  const auto item = [&](int64_t i, ItemMark& mark) {
    mark.StartStep(3);
    if (bad.contains(i)) abort();
  };
  const Seen one = RunItems(Options(1, 200, 64), item);
  EXPECT_EQ(one.answered, AllBut(200, bad));
  ASSERT_EQ(one.lost.size(), bad.size());
  size_t at = 0;
  for (const int64_t i : bad) {
    EXPECT_EQ(one.lost[at].item, i);
    EXPECT_EQ(one.lost[at].outcome, Outcome::kCrashed);
    EXPECT_EQ(one.lost[at].step, 3);
    EXPECT_TRUE(one.lost[at].reason.starts_with("crashed (signal 6")) << one.lost[at].reason;
    ++at;
  }
  // Once in its batch and once alone.
  EXPECT_EQ(one.replaced, 8);
  for (const int workers : {2, 4}) {
    const Seen many = RunItems(Options(workers, 200, 64), item);
    EXPECT_EQ(many.answered, one.answered);
    EXPECT_EQ(many.lost, one.lost);
  }
  const Seen small = RunItems(Options(3, 200, 1), item);
  EXPECT_EQ(small.lost, one.lost);
}

TEST_F(ProcessPoolTest, HangIsTheOutcomeOfTheItemInFlight) {
  const Seen seen =
      RunItems(Options(2, 40, 16), TimedItem([](int64_t i, ItemMark&, ChildTime& time) {
                 if (i != 21) return;
                 time.Hang();
                 Loop();
               }));
  EXPECT_EQ(seen.answered, AllBut(40, {21}));
  ASSERT_EQ(seen.lost.size(), 1u);
  EXPECT_EQ(seen.lost[0].item, 21);
  EXPECT_EQ(seen.lost[0].outcome, Outcome::kTimedOut);
  EXPECT_EQ(seen.lost[0].reason, "made no progress for 3600.0 s");
}

// Steps of 40 minutes each under a limit of an hour.
TEST_F(ProcessPoolTest, LimitStartsAtTheLastStep) {
  const auto item = [](int64_t, ItemMark& mark, ChildTime& time) {
    for (int step = 0; step < 3; ++step) {
      time.Pass(std::chrono::minutes(40), [&] { mark.StartStep(step); });
    }
  };
  const Seen seen = RunItems(Options(1, 1, 1), TimedItem(item));
  EXPECT_EQ(seen.answered, AllBut(1, {}));
  EXPECT_TRUE(seen.lost.empty()) << seen.lost[0].reason;
  // The same time without a step in between.
  const auto silent = [](int64_t, ItemMark&, ChildTime& time) {
    for (int step = 0; step < 3; ++step) time.Pass(std::chrono::minutes(40), [] {});
  };
  EXPECT_EQ(RunItems(Options(1, 1, 1), TimedItem(silent)).lost.size(), 1u);
}

TEST_F(ProcessPoolTest, ExceptionIsACrashWithItsText) {
  const Seen seen = RunItems(Options(2, 30, 8), [](int64_t i, ItemMark&) {
    if (i == 9) throw std::runtime_error("no such luck");
  });
  ASSERT_EQ(seen.lost.size(), 1u);
  EXPECT_EQ(seen.lost[0].item, 9);
  EXPECT_EQ(seen.lost[0].outcome, Outcome::kCrashed);
  EXPECT_EQ(seen.lost[0].reason, "threw: no such luck");
}

TEST_F(ProcessPoolTest, QuietExitIsACrash) {
  const Seen seen = RunItems(Options(1, 30, 8), [](int64_t i, ItemMark&) {
    if (i == 5) _exit(0);
  });
  ASSERT_EQ(seen.lost.size(), 1u);
  EXPECT_EQ(seen.lost[0].reason, "exited with code 0");
}

TEST_F(ProcessPoolTest, NonsenseCostsOneItemWhoeverItWas) {
  ProcessPool pool(Options(2, 64, 16), []() -> EvaluateBatch {
    return [](const Batch& batch, ItemMark& mark) {
      MessageEncoder encoder;
      for (int64_t i = batch.first; i < batch.end(); ++i) {
        mark.StartItem(i);
        if (i == 37) encoder.Byte('?');
        encoder.Integer(i);
      }
      return encoder.message();
    };
  });
  pool.is_sound = [](const Message& message) { return message.size() % 8 == 0; };
  int64_t answered = 0;
  std::vector<int64_t> lost;
  pool.deliver = [&](const BatchAnswer& answer) {
    if (answer.IsLost()) {
      lost.push_back(answer.batch.first);
      EXPECT_EQ(answer.reason, "sent an answer that is none");
    } else {
      answered += answer.batch.count;
    }
    return true;
  };
  EXPECT_EQ(pool.Run(), 64);
  EXPECT_EQ(answered, 63);
  EXPECT_EQ(lost, std::vector<int64_t>{37});
}

// What another item did to the worker's memory shows in a later one.
TEST_F(ProcessPoolTest, CrashThatNeedsEarlierItemsStaysACrashAndSaysSo) {
  static int damage = 0;
  const Seen seen = RunItems(Options(1, 40, 40), [](int64_t i, ItemMark&) {
    if (i == 20) damage = 1;
    if (i == 22 && damage == 1) abort();
  });
  ASSERT_EQ(seen.lost.size(), 1u);
  EXPECT_EQ(seen.lost[0].item, 22);
  EXPECT_NE(seen.lost[0].reason.find("not when it ran alone"), std::string::npos);
  EXPECT_EQ(seen.answered, AllBut(40, {22}));
}

TEST_F(ProcessPoolTest, WorkerKilledFromOutsideIsReplaced) {
  const Seen seen = RunItems(Options(3, 300, 16), [](int64_t i, ItemMark&) {
    if (i % 100 == 50) kill(getpid(), SIGKILL);
  });
  EXPECT_EQ(seen.answered, AllBut(300, {50, 150, 250}));
  ASSERT_EQ(seen.lost.size(), 3u);
  EXPECT_EQ(seen.lost[1].item, 150);
  EXPECT_TRUE(seen.lost[1].reason.starts_with("crashed (signal 9")) << seen.lost[1].reason;
}

TEST_F(ProcessPoolTest, EveryItemMayCrash) {
  const Seen seen = RunItems(Options(2, 12, 8), [](int64_t, ItemMark&) { abort(); });
  EXPECT_TRUE(seen.answered.empty());
  EXPECT_EQ(seen.lost.size(), 12u);
}

TEST_F(ProcessPoolTest, NothingIsDeliveredAfterEnough) {
  for (const int workers : {1, 4}) {
    const Seen seen = RunItems(Options(workers, -1, 8), [](int64_t, ItemMark&) {}, 100);
    EXPECT_GE(seen.delivered, 100);
    EXPECT_LT(seen.delivered, 108);
    EXPECT_EQ(seen.answered, AllBut(seen.delivered, {}));
  }
}

TEST_F(ProcessPoolTest, FinishCompletesWhatHasBegunAndStopDropsIt) {
  for (const PoolState end : {PoolState::kFinish, PoolState::kStop}) {
    PoolOptions options = Options(2, -1, 4);
    options.limits.since_progress = std::chrono::hours(1000);
    ProcessPool pool(options, []() -> EvaluateBatch {
      return [](const Batch& batch, ItemMark& mark) {
        mark.StartItem(batch.first);
        usleep(2000);
        return Message(8);
      };
    });
    int64_t items = 0;
    pool.deliver = [&](const BatchAnswer& answer) {
      items += answer.batch.count;
      return true;
    };
    pool.state = [&] { return items >= 20 ? end : PoolState::kGoOn; };
    EXPECT_EQ(pool.Run(), items);
    EXPECT_GE(items, 20);
    EXPECT_LT(items, 60);
  }
}

TEST(LossReason, LeavesOutWhatASanitizerPrintsOtherwiseEachTime) {
  ChildOutcome outcome;
  outcome.end = ChildEnd::kExited;
  outcome.code = 1;
  outcome.stderr_tail =
      "==17==ERROR: AddressSanitizer: SEGV on unknown address 0x0008 (pc 0x5581)\n"
      "    #0 0x5581 in Trim cache.cc:7\n"
      "SUMMARY: AddressSanitizer: SEGV cache.cc:7 in Trim\n==17==ABORTING\n";
  EXPECT_EQ(LossReason(outcome),
            "exited with code 1: SUMMARY: AddressSanitizer: SEGV cache.cc:7 in Trim");
}

}  // namespace
}  // namespace kvcheck
