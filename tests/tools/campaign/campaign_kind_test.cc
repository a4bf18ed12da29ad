#include "tools/campaign/campaign_kind.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvcheck {
namespace {

// Every kind that is asked is drawn, judged in batches and has its part of a gate.
TEST(CampaignKinds, EveryKindThatIsAskedHasARow) {
  const std::vector<CaseKind> drawn = DrawnKinds();
  int tenths = 0;
  for (size_t i = 0; i < kCaseKinds; ++i) {
    const CaseKind kind = KindAt(i);
    const bool is_drawn = std::find(drawn.begin(), drawn.end(), kind) != drawn.end();
    EXPECT_EQ(is_drawn, IsAsked(kind)) << Name(kind);
    if (!is_drawn) continue;
    const CampaignKind& row = CampaignKindOf(kind);
    EXPECT_GT(row.drawn_cases, 0) << Name(kind);
    EXPECT_GT(row.largest_batch, 0) << Name(kind);
    EXPECT_GT(row.gate_cost, 0) << Name(kind);
    EXPECT_GT(row.gate_tenths, 0) << Name(kind);
    tenths += row.gate_tenths;
    const std::unique_ptr<Subject> subject = MakeSubject(FindAnswerer(kind, ""), {});
    EXPECT_EQ(subject->Kind(), Name(kind));
    EXPECT_EQ(KindOf(subject->Draw(0).c), kind);
  }
  EXPECT_EQ(tenths, 10);
}

}  // namespace
}  // namespace kvcheck
