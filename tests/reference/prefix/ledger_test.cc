// What may hit and what has to, from what was kept: by rule of the profile and by what fits.

#include "reference/prefix/ledger.h"

#include <gtest/gtest.h>

#include "reference/prefix/name_row.h"

namespace kvcheck {
namespace {

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() { Begin("", 2, 100); }

  void Begin(const std::string& profile, int64_t block, int64_t capacity,
             const std::string& setup = "") {
    setup_ = ParsePrefixCase("prefix block=" + std::to_string(block) +
                             " tokens=" + std::to_string(capacity) + setup + " data=tokens:1")
                 .setup;
    ledger_.Start(setup_);
    ledger_.SetProfile(ParsePrefixProfile(profile));
    ledger_.SetStarted({block, capacity, true});
    who_ = ledger_.Identity({});
  }
  NodePath Path(const std::vector<int32_t>& tokens) {
    NodePath path;
    for (const int32_t token : tokens) {
      path.push_back(ledger_.Child(who_, path.empty() ? -1 : path.back(), token));
    }
    return path;
  }
  void Keep(const std::vector<int32_t>& tokens) {
    ledger_.Keep(Path(tokens), true, std::ssize(tokens));
    ledger_.ApplyBudget(0);
  }
  int64_t Due(const std::vector<int32_t>& tokens, bool all = true) {
    return ledger_.Due(Path(tokens), all, held_);
  }
  int64_t Most(const std::vector<int32_t>& tokens) { return ledger_.MostPublished(Path(tokens)); }

  PrefixSetup setup_;
  Ledger ledger_;
  int32_t who_ = 0;
  int64_t held_ = 0;
};

TEST_F(LedgerTest, AHitIsWholeBlocksOfTheLongestCommonPrefix) {
  Keep({0, 1, 0, 1, 0});
  EXPECT_EQ(Most({0, 1, 0, 1, 0, 0}), 5);
  EXPECT_EQ(Due({0, 1, 0, 1, 0, 0}), 4);
  EXPECT_EQ(Due({0, 1, 0, 0}), 2);  // parts inside a block
  EXPECT_EQ(Due({0, 1}), 2);
  EXPECT_EQ(Due({0, 1}, false), 0);  // the last token is to be computed
  EXPECT_EQ(Due({0, 1, 0}, false), 2);
  EXPECT_EQ(Due({1, 1, 0, 1}), 0);
}

TEST_F(LedgerTest, PartialRulesSayWhatIsFound) {
  for (const auto& [rule, longer, common] :
       {std::tuple{"common", 3, 2}, {"longer", 3, 0}, {"prefix", 0, 0}}) {
    Begin(std::string("grain=token partial=") + rule, 1, 100);
    Keep({0, 1, 0, 1});
    EXPECT_EQ(Due({0, 1, 0, 1, 1}), 4) << rule;
    EXPECT_EQ(Due({0, 1, 0}), longer) << rule;
    EXPECT_EQ(Due({0, 1, 1, 1}), common) << rule;
    // Equal, and the last token is to be computed: it has to be cut.
    EXPECT_EQ(Due({0, 1, 0, 1}, false), longer == 0 ? 0 : 3) << rule;
  }
}

TEST_F(LedgerTest, TheLastTokenHitsWhereThatVeryPromptWasKept) {
  Begin("grain=token last=exact", 1, 100);
  Keep({0, 1, 0, 1});
  EXPECT_EQ(Due({0, 1, 0, 1}, false), 4);
  EXPECT_EQ(Due({0, 1, 0}), 2);  // of a longer one it need not
  EXPECT_EQ(Due({0, 1, 0, 1, 1}), 4);
  EXPECT_EQ(ledger_.MostAllowed(3, false), 3);  // and may
}

TEST_F(LedgerTest, ATailHitsAPromptThatEndsWithIt) {
  Begin("tail=kept", 4, 100);
  Keep({0, 1, 0, 1, 0});
  EXPECT_EQ(Due({0, 1, 0, 1, 0}), 5);
  EXPECT_EQ(Due({0, 1, 0, 1, 0, 0}), 4);
}

// Blocks of 4; a window of 3 tokens needs the two rows before a hit.
TEST_F(LedgerTest, OfTheLastBlockEveryHitIsDueAndNoneBeforeIt) {
  Begin("partial=last_block", 4, 100, " window=3");
  Keep({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});  // whole blocks up to 12, of which 8 to 11 last
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0}), 12);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0}), 12);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0}), 8);  // leaves it there
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 8}), 8);        // ends there
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7}), 8);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7}, false), 0);  // 4: the last token is to be computed
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 0}), 0);
  Begin("partial=last_block", 4, 100, " window=3");
  Keep({0, 1, 2, 3, 4, 5, 6, 7});  // of whole blocks the last one is 4 to 7
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 0}), 4);
  EXPECT_EQ(Due({0, 1, 2, 3, 0}), 4);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7}, false), 4);
  EXPECT_EQ(Due({0, 1, 2, 0}), 0);
}

TEST_F(LedgerTest, TheLastBlockIsTheTailWhereATailIsKept) {
  Begin("partial=last_block tail=kept", 4, 100, " window=3");
  Keep({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), 10);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 8, 0}), 8);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 0}), 0);
  Begin("partial=last_block grain=token", 4, 100, " window=3");
  Keep({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 8, 0}), 9);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 0}), 8);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 0}), 0);
}

TEST_F(LedgerTest, WhereNoWindowHasLeftARowEveryHitIsDue) {
  const std::vector<int32_t> kept = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  for (const auto& [setup, due] :
       {std::pair{"", 4}, {" window=9", 4}, {" window=8", 0}, {" window=3", 0}}) {
    Begin("partial=last_block", 4, 100, setup);
    Keep(kept);
    EXPECT_EQ(Due({0, 1, 2, 3, 4, 0}), due) << setup;
  }
}

// A request that was itself a hit has of what is before the hit its window alone.
TEST_F(LedgerTest, APromptThatWentOnFromAnotherOneHasNoShorterHitsThanItsOwn) {
  Begin("partial=last_block", 4, 100, " window=3");
  Keep({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const NodePath other = Path({0, 1, 2, 3, 4, 5, 6, 7, 5});
  ledger_.Keep(other, true, 1, 8);  // its last block is 4 to 7
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 5, 5}), 8);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 0}), 0);
  ledger_.Save(0);
  ledger_.Clear();
  ledger_.Load(0);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 6, 7, 5, 5}), 8);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 0}), 0);
  // What all of its tokens were computed for is enough for the block before.
  ledger_.Keep(Path({0, 1, 2, 3, 4, 5, 6, 7, 6}), true, 9, 0);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 0}), 4);
  // Kept again from a hit, it may have been replaced; found whole, it was there.
  ledger_.Keep(Path({0, 1, 2, 3, 4, 5, 6, 7, 6}), true, 0, 9);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 0}), 4);
  ledger_.Keep(Path({0, 1, 2, 3, 4, 5, 6, 7, 6}), true, 1, 8);
  EXPECT_EQ(Due({0, 1, 2, 3, 4, 5, 0}), 0);
}

TEST_F(LedgerTest, ShortPromptsAndSupersededOnesNeedNotHit) {
  Begin("minimum=3 grain=token", 1, 100);
  Keep({0, 1});
  EXPECT_EQ(Due({0, 1, 1}), 0);
  EXPECT_EQ(Most({0, 1, 1}), 2);
  Begin("grain=token partial=prefix superseded=dropped", 1, 100);
  Keep({0, 1});
  Keep({0, 1, 0, 0});
  EXPECT_EQ(Due({0, 1, 1}), 0);
}

TEST_F(LedgerTest, BeyondTheBudgetNothingIsSureButTheRecent) {
  Begin("", 1, 5);
  Keep({0, 0, 0});
  Keep({1, 1, 1});
  EXPECT_EQ(Due({0, 0, 0}), 0);
  EXPECT_EQ(Due({1, 1, 1}), 0);
  EXPECT_EQ(Most({0, 0, 0}), 3);
  Begin("evict=lru", 1, 5);
  Keep({0, 0, 0});
  Keep({1, 1, 1});
  EXPECT_EQ(Due({0, 0, 0}), 0);
  EXPECT_EQ(Due({1, 1, 1}), 3);
}

TEST_F(LedgerTest, ALookKeepsAPartRecent) {
  Begin("evict=lru", 1, 6);
  Keep({0, 0, 0});
  Keep({1, 1});
  ledger_.Use(Path({0, 0, 1}), 2);
  Keep({2, 2, 2});
  // 3 tokens newest, 2 of the look, then 2 more would be 7 of 6.
  EXPECT_EQ(Due({2, 2, 2}), 3);
  EXPECT_EQ(Due({0, 0, 0}), 2);
  EXPECT_EQ(Due({1, 1}), 0);
}

TEST_F(LedgerTest, WhatMayBeRecentTakesItsPartOfTheBudget) {
  Begin("evict=lru", 1, 6);
  Keep({0, 0, 0});
  Keep({1});
  // Nobody knows which token and which 2: both count.
  ledger_.Touch(Path({0, 0, 0}), 0, 1);
  ledger_.Touch(Path({0, 0, 0}), 0, 2);
  Keep({2});
  Keep({3});
  EXPECT_EQ(Due({1}), 1);
  Keep({4});
  // 3 tokens newest, 2 and 1 that may be anything, then one more would be 7 of 6.
  EXPECT_EQ(Due({2}), 1);
  EXPECT_EQ(Due({1}), 0);
}

TEST_F(LedgerTest, ALookAtAPartIsNoPromptOfItsOwn) {
  Begin("grain=token last=exact evict=lru", 1, 4);
  Keep({0, 1});
  ledger_.Use(Path({0, 0}), 1);
  EXPECT_EQ(Due({0, 1}), 2);
  EXPECT_EQ(Due({0}), 0);  // cut from {0, 1}, of which a token is left to compute
  Begin("grain=token last=always partial=longer evict=lru", 1, 8);
  Keep({0});
  Keep({0, 0, 1});
  ledger_.Use(Path({0, 0}), 2);
  EXPECT_EQ(Due({0, 0}), 2);     // the longer one
  EXPECT_EQ(Due({0, 0, 0}), 1);  // the shorter one: {0, 0, 1} is neither
}

TEST_F(LedgerTest, OfWholePromptsALookMakesAllOfOneRecent) {
  Begin("grain=token last=always evict=lru", 1, 4);
  Keep({0, 1, 1});
  Keep({1});
  ledger_.Use(Path({0}), 1);  // all three tokens of {0, 1, 1} are the most recent
  Keep({2});
  EXPECT_EQ(Due({2}), 1);
  EXPECT_EQ(Due({0}), 1);
  EXPECT_EQ(Due({1}), 0);  // with them four tokens are more recent
}

TEST_F(LedgerTest, ClearEpochAndRestartForget) {
  Keep({0, 1});
  ledger_.Clear();
  EXPECT_EQ(Most({0, 1}), 0);
  Keep({0, 1});
  const NodePath old = Path({0, 1});
  ledger_.NextEpoch();
  EXPECT_EQ(Most({0, 1}), 0);
  EXPECT_NE(Path({0, 1}), old);
  Keep({0, 1});
  ledger_.Restart();  // without a disk
  EXPECT_EQ(Most({0, 1}), 0);
  Begin("persists=close", 1, 100, " disk=yes");
  Keep({0, 1});
  ledger_.Restart();
  EXPECT_EQ(Due({0, 1}), 2);
  Begin("", 1, 100, " disk=yes");  // persists=settle
  Keep({0, 1});
  ledger_.Restart();
  EXPECT_EQ(Due({0, 1}), 0);
  Keep({0, 1});
  ledger_.Settle();
  ledger_.Restart();
  EXPECT_EQ(Due({0, 1}), 2);
}

TEST_F(LedgerTest, WhatComesFromDiskNeedsRoom) {
  Begin("persists=close", 2, 8, " disk=yes");
  Keep({0, 1, 0, 1});
  held_ = 6;
  EXPECT_EQ(Due({0, 1, 0, 1}), 4);
  ledger_.Restart();
  EXPECT_EQ(Due({0, 1, 0, 1}), 2);
  held_ = 8;
  EXPECT_EQ(Due({0, 1, 0, 1}), 0);
  held_ = 0;
  EXPECT_EQ(Due({0, 1, 0, 1}), 4);
}

TEST_F(LedgerTest, SavedStoresComeBackUnderTheirOwnEpoch) {
  Keep({0, 1});
  ledger_.Save(0);
  ledger_.Clear();
  ledger_.Load(0);
  EXPECT_EQ(Due({0, 1}), 2);
  ledger_.NextEpoch();
  ledger_.Load(0);
  EXPECT_EQ(Most({0, 1}), 0);
}

TEST_F(LedgerTest, OnDamagedFilesNothingIsSureToBeWrittenUntilAProcessBeginsWithThem) {
  Begin("persists=close", 1, 100, " disk=yes");
  Keep({0, 1});
  ledger_.Damaged();
  EXPECT_EQ(Due({0, 1}), 0);
  Keep({0, 1});
  EXPECT_EQ(Due({0, 1}), 2);
  ledger_.Settle();
  ledger_.Restart();
  EXPECT_EQ(Due({0, 1}), 0);
  Keep({0, 1});
  ledger_.Restart();
  EXPECT_EQ(Due({0, 1}), 2);
}

TEST_F(LedgerTest, OfALoadedStoreNobodyKnowsWhatGoesFirst) {
  Begin("evict=lru", 1, 6);
  Keep({0, 0});
  Keep({1, 1});
  ledger_.Save(0);
  ledger_.Clear();
  ledger_.Load(0);
  Keep({2});
  EXPECT_EQ(Due({0, 0}), 2);
  EXPECT_EQ(Due({1, 1}), 2);
  Keep({3, 3});
  // 3 tokens newest, then 4 that came at once.
  EXPECT_EQ(Due({0, 0}), 0);
  EXPECT_EQ(Due({1, 1}), 0);
  EXPECT_EQ(Due({2}), 1);
}

TEST_F(LedgerTest, WhatMayBeInASavedStoreTakesItsPartOfTheBudget) {
  Begin("evict=lru", 1, 3);
  Keep({0, 0});
  Keep({1, 1});  // the first may be gone
  Keep({2});
  ledger_.Save(0);
  ledger_.Clear();
  ledger_.Load(0);
  ledger_.ApplyBudget(0);
  EXPECT_EQ(Due({2}), 0);
  EXPECT_EQ(Most({2}), 1);
}

// It drops nothing then, so that what it would drop takes room, and may be there or not.
TEST_F(LedgerTest, APromptThatIsThereAlreadyDropsNoShorterOne) {
  Begin("superseded=dropped", 1, 100, " entries=2");
  const NodePath longer = Path({0, 1, 2, 3});
  Keep({0, 1, 2, 3});
  Keep({0, 1});
  EXPECT_EQ(Due({0, 1, 2, 3}), 4);
  ledger_.Keep(longer, /*sure=*/true, /*written=*/0);
  ledger_.ApplyBudget(0);
  EXPECT_EQ(Due({0, 1, 2, 3}), 4);
  Keep({5});
  EXPECT_EQ(Due({0, 1, 2, 3}), 0);  // {0, 1} and {5} may be the two
  Begin("superseded=dropped", 1, 100, " entries=2");
  Keep({0, 1});
  Keep({0, 1, 2, 3});
  Keep({5});
  EXPECT_EQ(Due({0, 1, 2, 3}), 4);
}

TEST_F(LedgerTest, WhatIsLoadedMayDropAShorterOneThatIsLoaded) {
  Begin("superseded=dropped partial=prefix", 1, 100);
  Keep({0, 1, 2, 3});
  Keep({0, 1});
  ledger_.Save(0);
  EXPECT_EQ(Due({0, 1, 5}), 2);
  ledger_.Clear();
  ledger_.Load(0);
  EXPECT_EQ(Due({0, 1, 5}), 0);
  EXPECT_EQ(Due({0, 1, 2, 3}), 4);
  Begin("partial=prefix", 1, 100);
  Keep({0, 1, 2, 3});
  Keep({0, 1});
  ledger_.Save(0);
  ledger_.Clear();
  ledger_.Load(0);
  EXPECT_EQ(Due({0, 1, 5}), 2);
}

// Every name of contract.md, section 6, from a vector that is what it says.
TEST_F(LedgerTest, WrongRowsAreNamed) {
  const PrefixIdentity tenant = {
      .model = {}, .salt = "b", .adapter = {}, .version = 0, .image = {}};
  const int32_t other = ledger_.Identity(tenant);
  const NodePath path = Path({0, 1, 0, 1});
  const NodePath elsewhere = Path({1, 1, 0, 1});
  const NodePath stale = Path({1, 0});
  const int32_t theirs = ledger_.Child(other, -1, 0);
  for (const int32_t node : path) ledger_.MarkWritten(node, 0);
  for (const int32_t node : elsewhere) ledger_.MarkWritten(node, 1);
  for (const int32_t node : stale) ledger_.MarkWritten(node, 2);
  ledger_.MarkWritten(theirs, 3);
  ledger_.NextEpoch();
  const NodePath now = Path({0, 1, 0, 1});
  const NodePath later = Path({0, 0});
  for (const int32_t node : now) ledger_.MarkWritten(node, 4);
  ledger_.MarkWritten(later[1], 9);
  const RowLayout& layout = ledger_.layout();
  const auto name = [&](int32_t want, int32_t got, int64_t layer = 0, int64_t head = 0,
                        TokenPart part = TokenPart::kKey) {
    const std::vector<std::byte> bytes(ledger_.Content(got),
                                       ledger_.Content(got) + layout.TokenBytes());
    return NameRow(
               {want, 0, 0, TokenPart::kKey, 5, bytes.data() + layout.Offset(layer, head, part)},
               ledger_)
        .fault;
  };
  EXPECT_EQ(name(now[1], later[1]), HistoryFault::kWrittenLater);
  EXPECT_EQ(name(path[0], theirs), HistoryFault::kOtherTenant);
  EXPECT_EQ(name(now[2], path[2]), HistoryFault::kOlderEpoch);
  EXPECT_EQ(name(now[2], now[2], 0, 0, TokenPart::kValue), HistoryFault::kKForV);
  EXPECT_EQ(name(now[2], now[2], 1), HistoryFault::kOtherLayer);
  EXPECT_EQ(name(path[3], elsewhere[3]), HistoryFault::kOtherPrefix);
  EXPECT_EQ(name(now[2], now[0]), HistoryFault::kOtherPosition);
  EXPECT_EQ(name(path[1], stale[1]), HistoryFault::kStale);
  std::vector<std::byte> wrong(static_cast<size_t>(layout.k_bytes), std::byte{0});
  const auto name_bytes = [&] {
    return NameRow({now[0], 0, 0, TokenPart::kKey, 5, wrong.data()}, ledger_).fault;
  };
  EXPECT_EQ(name_bytes(), HistoryFault::kUnwritten);
  std::copy_n(ledger_.Content(now[0]), wrong.size(), wrong.data());
  wrong[0] ^= std::byte{1};
  EXPECT_EQ(name_bytes(), HistoryFault::kDamaged);
  std::copy_n(ledger_.Content(now[0]), wrong.size(), wrong.data());
  wrong[3] ^= std::byte{0x80};
  EXPECT_EQ(name_bytes(), HistoryFault::kDamaged);
}

// In eight channels every 256th row has the same signs: what is nearest is named.
TEST_F(LedgerTest, RowsWithEqualSignsAreToldApartByTheirValues) {
  Begin("", 1, 400, " layers=2 dk=8 dv=8");
  std::vector<int32_t> tokens(300);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 3);
  const NodePath path = Path(tokens);
  const int32_t wanted = Path({5}).front();
  for (const int32_t node : path) ledger_.MarkWritten(node, 0);
  ledger_.MarkWritten(wanted, 1);
  const RowLayout& layout = ledger_.layout();
  for (size_t i = 0; i < path.size(); ++i) {
    const std::vector<std::byte> bytes(ledger_.Content(path[i]),
                                       ledger_.Content(path[i]) + layout.TokenBytes());
    const NamedRow row = NameRow(
        {wanted, 0, 0, TokenPart::kKey, 2, bytes.data() + layout.Offset(0, 0, TokenPart::kKey)},
        ledger_);
    EXPECT_EQ(row.fault, HistoryFault::kStale) << row.text;
    EXPECT_NE(row.text.find(" is K of layer 0, head 0, position " + std::to_string(i) + " of"),
              std::string::npos)
        << i << ": " << row.text;
  }
}

}  // namespace
}  // namespace kvcheck
