// The crash test with few kills; killed_store (killed_store_main.cc) is the long one.

#include "killed_store.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace kvcheck {
namespace {

TEST(KilledStore, NothingOlderIsLostAndNothingIsWrong) {
  TemporaryFolder folder;
  KillCounts counts;
  EXPECT_EQ(KillStores(folder.path(), {.seed = 1, .kills = 40, .sync = false}, &counts), "");
  EXPECT_EQ(counts.kills, 40);
  EXPECT_GT(counts.operations, 40);
  EXPECT_GT(counts.prompts_found, 40);
}

}  // namespace
}  // namespace kvcheck
