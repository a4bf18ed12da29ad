// What the results of a run add up to: counts and the exit code, in one place.
//
//   0    everything passed
//   1    something failed: FAIL, CRASHED, TIMED_OUT, or an expectation that was not met
//   2    the question could not be put: ILLEGAL_CASE, or nothing was selected
//   3    nothing failed, but something is MISTRUSTED, or nothing at all was proved (everything is
//        UNSUPPORTED, or expected to be MISTRUSTED)
//   4    internal error
//   130  interrupted; the report is partial
// A report that cannot be written turns 0 into 2 and changes no other code: what failed has failed.
// The highest of 4 > 2 > 1 > 3 > 0 wins. An interrupted run exits with 130 whatever it had found,
// because what it had not yet judged could be anything.

#ifndef TOOLS_REPORT_SUMMARY_H_
#define TOOLS_REPORT_SUMMARY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/report/campaign_counts.h"
#include "tools/report/case_result.h"

namespace kvcheck {

inline constexpr int kExitPassed = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitNotPut = 2;
inline constexpr int kExitMistrusted = 3;
inline constexpr int kExitInternal = 4;
inline constexpr int kExitInterrupted = 130;

// Of a comparison of files tensor by tensor.
struct TensorCounts {
  int64_t compared = 0;  // pairs whose elements were compared
  int64_t bytes = 0;     // of them, in both files
  int64_t missing = 0;
  int64_t extra = 0;
  int64_t allowed_missing = 0;  // left out, because the options allow it
  int64_t allowed_extra = 0;
  int64_t rules = 0;  // different rules that decided
  bool operator==(const TensorCounts&) const = default;
};

// Cases of one kind that lie outside of what the implementation states.
struct OutsideCount {
  std::string kind;  // "attention"
  int64_t cases = 0;
  bool operator==(const OutsideCount&) const = default;
};

struct Summary {
  int64_t cases = 0;
  // By StandpointOf; they add up to cases.
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t mistrusted = 0;
  int64_t expected_mistrusted = 0;
  int64_t known_findings = 0;
  int64_t unsupported = 0;
  int64_t illegal = 0;
  // Details: of failed.
  int64_t crashed = 0;
  int64_t timed_out = 0;
  int64_t unmet = 0;     // expectations not met, and failures by --strict alone
  int64_t warnings = 0;  // of all cases
  int64_t judged = 0;    // elements
  bool interrupted = false;
  // Of the results that no campaign stands behind and that were asked, by Standpoint.
  std::array<int64_t, kStandpoints> asked{};
  // Campaigns whose cases together are no pass although none of them failed, by Standpoint.
  std::array<int64_t, kStandpoints> campaigns_as_whole{};
  std::vector<OutsideCount> outside;  // in the order in which kinds came
  bool outside_fails = false;         // strict
  std::optional<TensorCounts> tensors;
  // Of drawn cases: each of their failures, and a campaign without any, is one result of the run.
  std::vector<CampaignCounts> campaigns;
  // What else is worth knowing, as sentences.
  std::vector<std::string> notes;
  // What the failing tensors have in common, as sentences.
  std::vector<std::string> patterns;

  void Add(const CaseResult& result, bool strict);
  void Add(CampaignCounts campaign);
  int ExitCode() const;
  int64_t Outside() const;
  bool operator==(const Summary&) const = default;
};

// "12 cases: 10 passed, 1 failed, 1 mistrusted; 24576 elements judged, 2 warnings", of tensors
// "12 tensors: 10 passed, 2 failed (1 missing); 3 compared by 1 rule, 96 bytes; ...". Of suites and
// drawn cases together every case is counted: "505 cases (5 of suites, 500 drawn): 505 passed;
// ...".
std::string Print(const Summary& summary);
// "232 of 237 cases of suites lie outside of what 'x' states: attention 90, cache 142"; "": none.
std::string OutsideText(const Summary& summary);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_SUMMARY_H_
