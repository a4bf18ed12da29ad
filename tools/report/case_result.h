// One line of a run: a verdict, and what was expected of it. Most results are expected to pass; a
// golden file also keeps comparisons which are known to prove nothing, and findings: known faults
// of an implementation, which must go on being found.

#ifndef TOOLS_REPORT_CASE_RESULT_H_
#define TOOLS_REPORT_CASE_RESULT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "reference/judge/verdict.h"

namespace kvcheck {

enum class Expectation : uint8_t { kPass, kMistrusted, kFinding };

// "PASS", "MISTRUSTED", "FAIL", as in the attribute `expect` of golden files.
std::string_view Name(Expectation expectation);

struct CaseResult {
  std::string name;  // of the case in its file, with the implementation; "" where it has none
  Verdict verdict;
  Expectation expectation = Expectation::kPass;
  // Found by a campaign: its reasons say how, and are shown beside what the judge said.
  bool drawn = false;
  std::string finding;  // the reason of an expected MISTRUSTED or FAIL
  // The failure is recognised as the finding itself, so that a crash can be one.
  bool same_finding = false;
  // UNSUPPORTED because it lies outside of what the implementation states that it has: it was not
  // asked.
  bool outside = false;
};

// What a result means for the run.
enum class Standpoint : uint8_t {
  kPassed,
  kFailed,
  kMistrusted,
  kExpectedMistrusted,  // counted apart
  kKnownFinding,        // fails, as it is known to
  kUnsupported,
  kIllegal,
};
inline constexpr int kStandpoints = static_cast<int>(Standpoint::kIllegal) + 1;

// strict: warnings, MISTRUSTED and UNSUPPORTED are failures.
Standpoint StandpointOf(const CaseResult& result, bool strict);

// Why a result whose verdict alone would not fail the run does: "expected FAIL (reason), got PASS",
// "3 warnings (strict)"; "" for every other result.
std::string UnmetReason(const CaseResult& result, bool strict);

// Warnings of the verdict and of all its outputs.
int64_t WarningCount(const Verdict& verdict);

// The name, or the kind of the case ("attention").
std::string Title(const CaseResult& result);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_CASE_RESULT_H_
