// What the checks are worth: every fault is asked its smallest case, then drawn cases until one is
// caught, which is shrunk; and the same cases are asked of the implementation without the fault, on
// which nothing may fail.

#ifndef TOOLS_CAMPAIGN_FAULT_RUN_H_
#define TOOLS_CAMPAIGN_FAULT_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/campaign/customary_rules.h"
#include "tools/campaign/fault_trials.h"
#include "tools/corridor/cancel.h"
#include "tools/faults/fault_table.h"

namespace kvcheck {

inline constexpr uint64_t kFaultSeed = 1;  // of drawn cases

struct FaultOutcome {
  Fault fault;
  // Why it is not caught as its line says, one sentence each; empty: it is.
  std::vector<std::string> failures;
  Trial smallest;             // of the smallest case, faulty
  int64_t smallest_size = 0;  // of that case, as `elements`
  // Of drawn cases.
  bool caught = false;
  Trial drawn;           // of the case that was caught
  int64_t cases = 0;     // drawn until then, with it; all that were drawn where none was
  int64_t elements = 0;  // size of that case: operations of a trace, elements of inputs
  int64_t shrunk = 0;    // the same of the shrunk case
  std::string shrunk_command;
  Rejected rejected{};  // by other rules, of the case that was caught
  double seconds = 0;   // processor time of drawing and judging until it was caught
  bool is_done = false;
};

// In the order of the faults, the same for every number of threads but for seconds. Fewer than the
// faults where the run was cancelled: those that were done by then.
// progress: told how many are done, by any thread, one at a time.
std::vector<FaultOutcome> RunFaults(const std::vector<Fault>& faults, int threads,
                                    const std::function<void(int64_t)>& progress,
                                    const Cancel& cancel = {});

// Whether a trial shows the fault: a failure, or where its line names it a verdict that says that
// the data could prove nothing.
bool IsCaught(const FaultText& fault, const Trial& trial);
// Of its smallest case without the fault: PASS, or where the data prove nothing MISTRUSTED.
Outcome HealthyOutcome(const FaultText& fault);

// Judges a case of the fault again: kvcheck run, but where the check asks more than once, which
// that does not.
std::string CommandOf(const Fault& fault, const CaseEntry& entry, const std::string& check);

// The faults of the kind ("": of every kind) whose id matches one of the patterns, in the order of
// the table; all of them without patterns. Errors: kUsage where a pattern matches nothing.
std::vector<Fault> SelectFaults(const std::vector<std::string>& patterns,
                                std::string_view kind = "");

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_FAULT_RUN_H_
