#include "tools/campaign/subject.h"

#include "fuzz/shrink_case.h"

namespace kvcheck {

ShrunkEntry ShrinkEntry(const CaseEntry& entry, const StillFails& still_fails, int64_t max_runs,
                        const std::function<bool(const Case&)>& has) {
  CaseEntry candidate = entry;
  const ShrunkCase shrunk = ShrinkCase(
      entry.c,
      [&](const Case& c) {
        candidate.c = c;
        return still_fails(candidate);
      },
      max_runs, has);
  candidate.c = shrunk.c;
  return {candidate, shrunk.runs, shrunk.complete};
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
