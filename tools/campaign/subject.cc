#include "tools/campaign/subject.h"

#include <utility>

#include "fuzz/shrink_case.h"
#include "reference/spec/plan.h"

namespace kvcheck {

namespace {

// The entry with the plainest plan under which it fails. Counts what it asks in `runs`.
CaseEntry WithPlainerPlan(CaseEntry entry, const StillFails& still_fails, int64_t max_runs,
                          int64_t* runs) {
  for (bool plainer = !entry.plan.empty(); plainer;) {
    plainer = false;
    for (const Plan& plan : PlainerPlans(ParsePlan(entry.plan))) {
      if (*runs >= max_runs) return entry;
      CaseEntry candidate = entry;
      candidate.plan = Print(plan);
      ++*runs;
      plainer = still_fails(candidate);
      if (!plainer) continue;
      entry = std::move(candidate);
      break;
    }
  }
  return entry;
}

}  // namespace

ShrunkEntry ShrinkEntry(const CaseEntry& entry, const StillFails& still_fails, int64_t max_runs,
                        const std::function<bool(const Case&)>& has) {
  int64_t runs = 0;
  CaseEntry candidate = WithPlainerPlan(entry, still_fails, max_runs, &runs);
  const ShrunkCase shrunk = ShrinkCase(
      entry.c,
      [&](const Case& c) {
        candidate.c = c;
        return still_fails(candidate);
      },
      max_runs - runs, has);
  candidate.c = shrunk.c;
  return {candidate, runs + shrunk.runs, shrunk.complete};
}

std::chrono::milliseconds WorkerLimit(const Subject& subject, std::chrono::milliseconds limit) {
  // What the judges wait for is over by then; the worker's own work gets as long as before.
  constexpr std::chrono::milliseconds kBeyond{60'000};
  return subject.Supervises() ? limit + kBeyond : limit;
}

std::string LossSignature(const Subject& subject, const CaseEntry& entry, Outcome outcome,
                          int64_t step) {
  const std::string name = step < 0 ? "" : subject.StepName(entry, step);
  const std::string what(Name(outcome));
  return name.empty() ? what : name + " " + what;
}

}  // namespace kvcheck
