// What a campaign of drawn cases comes to, as reports show it.

#ifndef TOOLS_REPORT_CAMPAIGN_COUNTS_H_
#define TOOLS_REPORT_CAMPAIGN_COUNTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/judge/verdict.h"

namespace kvcheck {

struct ProbeReach {
  std::string name;
  int64_t reached = 0;  // times, over all cases
  bool operator==(const ProbeReach&) const = default;
};

// Operations that the implementation does not have, which were skipped.
struct DeclinedSteps {
  std::string kind;  // "save"
  int64_t count = 0;
  bool operator==(const DeclinedSteps&) const = default;
};

// Cases that failed, or proved nothing, in one way.
struct CampaignFinding {
  std::string signature;
  Outcome outcome = Outcome::kFail;
  std::string reason;  // of the first of them
  int64_t cases = 0;
  int64_t first_case = 0;
  int64_t shrunk = 0;  // of these cases
  int64_t unseen = 0;  // taken for a known cause without being shrunk
  bool operator==(const CampaignFinding&) const = default;
};

struct CampaignCounts {
  std::string kind;
  std::string implementation;
  std::string version;
  uint64_t seed = 0;
  int64_t cases = 0;
  // They add up to cases.
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t mistrusted = 0;
  int64_t unsupported = 0;
  // Part of mistrusted: whoever answers, since the data of the case prove nothing.
  int64_t by_data = 0;
  // Parts of failed.
  int64_t known = 0;  // attributed to known failures
  int64_t crashed = 0;
  int64_t timed_out = 0;
  int64_t operations = 0;
  int64_t states = 0;
  int64_t elements = 0;
  std::vector<DeclinedSteps> declined;  // kinds that were declined at least once
  // What the implementation's profile takes out of judging, and what its spaces do not have.
  std::vector<std::string> left_open;
  std::vector<std::string> not_asked;
  std::vector<ProbeReach> probes;
  bool must_reach = false;  // a probe that was not reached is a hole
  std::vector<CampaignFinding> failures;
  std::vector<CampaignFinding> unproved;

  // Cases that proved nothing about the implementation, of those whose data could have.
  int64_t Unproved() const { return mistrusted - by_data + unsupported; }
  int64_t Provable() const { return cases - by_data; }
  bool operator==(const CampaignCounts&) const = default;
};

// "fuzz cache on optimized 1, seed 1: 20000 cases: 20000 passed; 260000 operations, ..."
std::string Print(const CampaignCounts& campaign);
// "operations declined by the implementation: save 120, load 3", ended; "" where none was.
std::string DeclinedText(const CampaignCounts& campaign);
// "not judged, by its profile: A; B. not asked, by its spaces: fork, disk", ended; "" where
// everything is.
std::string LeftOpenText(const CampaignCounts& campaign);
// A line for each way to prove nothing, at most max_print; each line ended.
std::string UnprovedText(const CampaignCounts& campaign, int64_t max_print);
// Three probes a line, each line ended; "" without probes.
std::string ProbeTable(const CampaignCounts& campaign);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_CAMPAIGN_COUNTS_H_
