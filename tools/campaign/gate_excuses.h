// Which failures a gate goes on past: those whose cause is known, by the canonical form of their
// shrunk case where the file of known failures has traces (tools/campaign/known_failures.h), by
// their signature alone where it has none. Counts how many were looked at and how many were taken
// for known unseen, and writes what it did not know as entries of a file.

#ifndef TOOLS_CAMPAIGN_GATE_EXCUSES_H_
#define TOOLS_CAMPAIGN_GATE_EXCUSES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/campaign/fuzz_run.h"
#include "tools/campaign/known_failures.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/case_judges.h"
#include "tools/corridor/cases_file.h"
#include "tools/report/campaign_counts.h"
#include "tools/report/case_result.h"

namespace kvcheck {

class GateExcuses {
 public:
  // file: of known failures; "": nothing is known. Errors: kUnreadableFile, kParse; Cancelled.
  // writes: what is not known will be written.
  GateExcuses(const std::string& file, bool writes, const Cancel& cancel);

  bool IsEmpty() const { return known_.entries().empty(); }
  // Errors: kSelection for an entry whose case is none of these.
  void CheckCases(const std::vector<CaseEntry>& cases) const;
  const KnownCauses& CausesOf(const Answerer& answerer);

  // Whether only a shrunk case can tell if the failure of this case is known, or what to write of
  // it.
  bool NeedsShrinking(const std::string& signature, const Answerer& answerer,
                      const CaseEntry& entry, const CaseResult& result);
  // Marks a case of a suite that is known to fail. shrunk: what its failure came down to; the case
  // itself where that was not looked for.
  void ExcuseCase(const std::string& signature, const Answerer& answerer, const Case& shrunk,
                  bool shrunk_whole, CaseResult* result);
  // Marks the failures of drawn cases, and fills in how many of each signature were looked at.
  void ExcuseDrawn(const Answerer& answerer, std::vector<FuzzFailure>* failures,
                   CampaignCounts* counts);

  // Sentences: what was seen in no case of the run, what has expired, and the sums.
  std::vector<std::string> Notes(const std::map<CaseKind, Answerer>& answerers) const;
  // The file that was read, and behind it an entry for each signature that was not known: with what
  // was shrunk to the end, since nothing else is a cause. How many failures were not.
  // Errors: kUnreadableFile when it cannot be written.
  int64_t Write(const std::string& path, const std::string& reason,
                const std::string& expires) const;

 private:
  // What is not known, by signature and implementation.
  void Remember(const std::string& signature, const Answerer& answerer, const std::string& text,
                bool shrunk_whole);
  const KnownFailure* Excuse(const std::string& signature, const Answerer& answerer,
                             const std::string& form, CaseResult* result);

  bool writes_;
  std::string content_;
  KnownFailures known_;
  std::string today_;
  std::map<CaseKind, KnownCauses> causes_;  // by kind
  std::set<int64_t> hit_;                   // lines of known_
  std::vector<KnownFailure> new_;
  int64_t not_shrunk_ = 0;
  int64_t matched_ = 0;       // shrunk to a known trace
  int64_t unmatched_ = 0;     // shrunk to none
  int64_t unseen_ = 0;        // of signatures whose shrunk cases are known, not shrunk
  int64_t by_signature_ = 0;  // known by a signature without traces
};

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_GATE_EXCUSES_H_
