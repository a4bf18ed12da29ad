#include "tools/campaign/fuzz_tally.h"

#include <gtest/gtest.h>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

FuzzTally Sample() {
  FuzzTally tally;
  tally.Add(0, {});
  tally.Add(1, {Outcome::kFail, "append visible_missing", "operation 2: gone"});
  tally.Add(2, {Outcome::kCrashed, "trim CRASHED", "signal 6"});
  tally.Add(3, {Outcome::kFail, "append visible_missing", "operation 9: gone"});
  tally.Add(4, {Outcome::kTimedOut, "trim TIMED_OUT", "no progress"});
  tally.Add(5, {Outcome::kMistrusted, "MISTRUSTED", "equal bytes"});
  tally.Add(6, {Outcome::kUnsupported, "UNSUPPORTED", "no such layout"});
  JudgedCase blind = {Outcome::kMistrusted, "MISTRUSTED, by its own data", "two bits"};
  blind.by_data = true;
  tally.Add(7, blind);
  tally.counts = {10, 20, 30, {1, 0, 2}, {0, 7}};
  return tally;
}

TEST(FuzzTally, FailuresAreOneWhenTheySignTheSame) {
  const FuzzTally tally = Sample();
  EXPECT_EQ(tally.cases, 8);
  EXPECT_EQ(tally.passed, 1);
  EXPECT_EQ(tally.failed, 4);
  EXPECT_EQ(tally.crashed, 1);
  EXPECT_EQ(tally.timed_out, 1);
  EXPECT_EQ(tally.mistrusted, 2);
  EXPECT_EQ(tally.by_data, 1);
  EXPECT_EQ(tally.unsupported, 1);
  ASSERT_EQ(tally.failures.size(), 3u);
  EXPECT_EQ(tally.failures[0],
            (FailureSum{Outcome::kFail, "append visible_missing", "operation 2: gone", 1, 2}));
  EXPECT_EQ(tally.failures[1].signature, "trim CRASHED");
  EXPECT_EQ(tally.unproved.size(), 3u);
}

TEST(FuzzTally, AFailureAndACrashOfOneSignatureAreTwo) {
  FuzzTally tally;
  tally.Add(0, {Outcome::kFail, "s", ""});
  tally.Add(1, {Outcome::kCrashed, "s", ""});
  EXPECT_EQ(tally.failures.size(), 2u);
}

// However a stretch of cases is cut.
TEST(FuzzTally, AddingIsAssociative) {
  const FuzzTally whole = Sample();
  FuzzTally later;
  later.Add(7, {Outcome::kCrashed, "trim CRASHED", "signal 11"});
  later.Add(8, {Outcome::kFail, "filter kv_mismatch", "mixed"});
  later.counts = {1, 1, 1, {0, 5, 0}, {2, 1, 4}};
  FuzzTally left = whole;
  left.Add(later);
  left.Add(Sample());
  FuzzTally tail = later;
  tail.Add(Sample());
  FuzzTally right = whole;
  right.Add(tail);
  EXPECT_EQ(left, right);
  EXPECT_EQ(left.failures[1].cases, 3);
  EXPECT_EQ(left.failures[1].reason, "signal 6");
  EXPECT_EQ(left.counts.probes, (std::vector<int64_t>{2, 5, 4}));
  EXPECT_EQ(left.counts.declined, (std::vector<int64_t>{2, 15, 4}));
}

// Of each group the first cases, however the stretch is cut.
TEST(FuzzTally, GroupsKeepTheirFirstCases) {
  const auto add = [](int64_t first, int64_t end, FuzzTally* tally) {
    for (int64_t index = first; index < end; ++index) {
      tally->Add(index, {Outcome::kFail, "s", "", 3, index % 10 == 7 ? "rare" : "common"});
    }
  };
  FuzzTally whole;
  add(0, 400, &whole);
  ASSERT_EQ(whole.failures.size(), 1u);
  ASSERT_EQ(whole.failures[0].groups.size(), 2u);
  EXPECT_EQ(whole.failures[0].cases, 400);
  EXPECT_EQ(whole.failures[0].groups[0].name, "common");
  EXPECT_EQ(whole.failures[0].groups[0].cases.size(), kGroupCases);
  EXPECT_EQ(whole.failures[0].groups[1].cases.size(), kGroupCases);
  EXPECT_EQ(whole.failures[0].groups[1].cases.front(), 7);
  for (const int64_t cut : {1, 8, 30, 399}) {
    FuzzTally joined;
    add(0, cut, &joined);
    FuzzTally rest;
    add(cut, 400, &rest);
    joined.Add(DecodeTally(Encode(rest)));
    EXPECT_EQ(joined, whole) << cut;
  }
}

TEST(FuzzTally, MessageGivesTheSameTally) {
  EXPECT_EQ(DecodeTally(Encode(Sample())), Sample());
  EXPECT_EQ(DecodeTally(Encode(FuzzTally())), FuzzTally());
}

TEST(FuzzTally, DamagedMessagesAreRefusedOrSomeOtherTally) {
  const Message message = Encode(Sample());
  for (size_t size = 0; size < message.size(); ++size) {
    EXPECT_THROW(
        DecodeTally(Message(message.begin(), message.begin() + static_cast<int64_t>(size))), Error)
        << size;
  }
  int refused = 0;
  for (size_t at = 0; at < message.size(); ++at) {
    Message damaged = message;
    damaged[at] ^= std::byte{0x80};
    try {
      EXPECT_NE(DecodeTally(damaged), Sample());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace kvcheck
