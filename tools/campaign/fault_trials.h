// One case asked of an implementation with a fault and of the same without: what the judge says of
// each, whether the replaced rule was used with another result, and what other rules would say.

#ifndef TOOLS_CAMPAIGN_FAULT_TRIALS_H_
#define TOOLS_CAMPAIGN_FAULT_TRIALS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "reference/judge/verdict.h"
#include "tools/campaign/customary_rules.h"
#include "tools/campaign/subject.h"
#include "tools/corridor/implementations.h"
#include "tools/faults/fault_table.h"

namespace kvcheck {

struct Trial {
  Outcome outcome = Outcome::kPass;
  std::string check;   // CheckOf(the signature); "" of PASS
  std::string reason;  // one line; "" of PASS
  // Of a faulty answer: elements that differ from the right one's; of caches, how often the rule
  // made a difference.
  int64_t hits = 0;
};

// Cases of one kind by their index in the sequence of seed 1, with the right answers, which all
// faults of the kind share. Thread-safe.
class DrawnCases {
 public:
  struct Known;
  explicit DrawnCases(FaultKind kind);
  ~DrawnCases();
  const Known& At(int64_t index);

 private:
  struct Place {
    std::once_flag once;
    std::unique_ptr<Known> known;
  };
  FaultKind kind_;
  std::unique_ptr<Subject> subject_;
  std::mutex mutex_;
  std::deque<Place> places_;
};

// Trials of one fault; of one thread.
class FaultTrials {
 public:
  virtual ~FaultTrials() = default;
  virtual CaseEntry Draw(int64_t index) = 0;
  // A drawn case; cheaper than the same by its entry.
  virtual Trial DrawnFaulty(int64_t index) = 0;
  virtual Trial DrawnHealthy(int64_t index) = 0;
  virtual Trial Faulty(const CaseEntry& entry) = 0;
  virtual Trial Healthy(const CaseEntry& entry) = 0;
  // The verdict as a report shows it.
  virtual Verdict Explain(const CaseEntry& entry) = 0;
  virtual Rejected OtherRules(const CaseEntry& entry) = 0;
  // Operations of a trace, elements of inputs.
  virtual int64_t SizeOf(const CaseEntry& entry) const = 0;
  virtual ShrunkEntry Shrink(const CaseEntry& entry, const StillFails& still_fails) const = 0;
};

// cases: of the fault's kind, which outlives the trials.
std::unique_ptr<FaultTrials> MakeFaultTrials(const Fault& fault, DrawnCases* cases);

// The smallest case of its line. Errors: those of ParseCase.
CaseEntry SmallestCase(const Fault& fault);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_FAULT_TRIALS_H_
