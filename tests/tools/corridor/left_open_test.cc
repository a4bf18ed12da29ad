// What a campaign says that an implementation left open: every word of a profile that loosens the
// judge has its phrase, and what no space has is named.

#include "tools/corridor/left_open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvcheck {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(LeftOpen, OrderOfEvictionIsOpenUntilItIsStated) {
  EXPECT_THAT(LeftOpen(PrefixProfile()), ElementsAre(HasSubstr("evict=lru is not stated")));
  EXPECT_THAT(LeftOpen(ParsePrefixProfile("evict=lru")), IsEmpty());
}

TEST(LeftOpen, WordsThatLoosenAPrefixProfileHaveAPhraseEach) {
  for (const std::string word :
       {"partial=longer", "partial=prefix", "partial=last_block", "minimum=7", "superseded=dropped",
        "fetch=takes", "busy=refused", "flips=served", "slack=2"}) {
    EXPECT_THAT(LeftOpen(ParsePrefixProfile("evict=lru " + word)),
                ElementsAre(HasSubstr("(" + word + ")")));
  }
  // Conventions of which each value is judged.
  EXPECT_THAT(LeftOpen(ParsePrefixProfile("evict=lru grain=token last=exact tail=kept")),
              IsEmpty());
}

TEST(LeftOpen, WordsThatLoosenACacheProfileHaveAPhraseEach) {
  EXPECT_THAT(LeftOpen(CacheProfile()), IsEmpty());
  for (const std::string word :
       {"trim=shorter", "size=any", "bytes=any", "empty=any", "trimmable=any"}) {
    EXPECT_THAT(LeftOpen(ParseCacheProfile(word)), ElementsAre(HasSubstr("(" + word + ")")));
  }
  EXPECT_THAT(LeftOpen(ParseCacheProfile("size=columns bytes=capacity")), IsEmpty());
}

TEST(LeftOpen, WhatOneOfSeveralSpacesHasIsAsked) {
  EXPECT_THAT(NotAsked(std::vector<PrefixSpace>()), IsEmpty());
  PrefixSpace few;
  few.disk = false;
  few.operations &= ~(1u << static_cast<int>(PrefixOpKind::kFork));
  EXPECT_THAT(NotAsked({few}), ElementsAre("fork", "disk"));
  EXPECT_THAT(NotAsked({few, PrefixSpace()}), IsEmpty());
  CacheSpace single;
  single.rows = SpaceRows::kSingle;
  EXPECT_THAT(NotAsked({single}), ElementsAre("batches"));
  CacheSpace batch;
  batch.operations = 0;
  EXPECT_THAT(NotAsked({batch}), SizeIs(kCacheOpKinds));
  EXPECT_THAT(NotAsked({single, batch}), IsEmpty());
}

}  // namespace
}  // namespace kvcheck
