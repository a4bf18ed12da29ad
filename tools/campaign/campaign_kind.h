// What a campaign does with cases of each kind: how many it draws and how many it judges at a time.

#ifndef TOOLS_CAMPAIGN_CAMPAIGN_KIND_H_
#define TOOLS_CAMPAIGN_CAMPAIGN_KIND_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "reference/spec/case_kind.h"
#include "tools/campaign/fuzz_subjects.h"

namespace kvcheck {

struct CampaignKind {
  // Null: nothing of the kind is drawn.
  std::unique_ptr<Subject> (*make_subject)(const Answerer&, const DrawSettings&,
                                           const Cancel&) = nullptr;
  int64_t drawn_cases = 0;    // of fuzz, where it is not told how many
  int64_t largest_batch = 0;  // some milliseconds of work
  // Of a gate: its place among the kinds, so many of its budget of cases for one of this kind, and
  // tenths of its time.
  int gate_place = 0;
  int64_t gate_cost = 1;
  int gate_tenths = 0;
};

const CampaignKind& CampaignKindOf(CaseKind kind);
// Those of which cases are drawn, in the order of a gate.
std::vector<CaseKind> DrawnKinds();

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_CAMPAIGN_KIND_H_
