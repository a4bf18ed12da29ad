// What a campaign asks and of whom: cases drawn by their index, an implementation that answers
// them, and how one case is judged, made smaller and asked again from a command line.

#ifndef TOOLS_CAMPAIGN_SUBJECT_H_
#define TOOLS_CAMPAIGN_SUBJECT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/verdict.h"
#include "tools/corridor/case_judge.h"
#include "tools/corridor/cases_file.h"

namespace kvcheck {

using StillFails = std::function<bool(const CaseEntry&)>;

struct ShrunkEntry {
  CaseEntry entry;
  int64_t runs = 0;
  bool complete = true;  // false: the budget ended first
};

class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string Kind() const = 0;            // "cache"
  virtual std::string Implementation() const = 0;  // as --impl names it
  virtual std::string Version() const = 0;
  // Name and version as reports show them.
  virtual std::string Shown() const { return Implementation() + " " + Version(); }
  virtual std::vector<std::string> ProbeNames() const { return {}; }
  // Kinds of steps that an implementation may decline one by one: "append", ...
  virtual std::vector<std::string> StepKinds() const { return {}; }
  // Whether every legal case of the kind may be drawn, so that a probe which many cases do not
  // reach is a hole.
  virtual bool DrawsEverything() const { return true; }
  // A pure function of the subject's seed and options, and of the index.
  virtual CaseEntry Draw(int64_t index) const = 0;
  // "case 17 of seed 1".
  virtual std::string Origin(int64_t index) const = 0;
  // limit: since the last progress of a case; only a subject that supervises it needs to know.
  // Errors: kUsage where there is no such implementation.
  virtual std::unique_ptr<CaseJudge> MakeJudge(std::chrono::milliseconds limit) const = 0;
  // Whether its judges hold the implementation to the limit themselves, and say what was lost.
  virtual bool Supervises() const { return false; }
  // What a step of a case is, for the signature of a crash: "append"; "" where it has none.
  virtual std::string StepName(const CaseEntry& entry, int64_t step) const = 0;
  // "23 operations".
  virtual std::string SizeOf(const CaseEntry& entry) const = 0;
  virtual ShrunkEntry Shrink(const CaseEntry& entry, const StillFails& still_fails,
                             int64_t max_runs) const = 0;
  // Judges the case again: "kvcheck run '...' --impl optimized".
  virtual std::string Command(const CaseEntry& entry) const = 0;
};

// The entry with a plainer plan, then ShrinkCase of its case (fuzz/shrink_case.h); everything else
// stays.
ShrunkEntry ShrinkEntry(const CaseEntry& entry, const StillFails& still_fails, int64_t max_runs,
                        const std::function<bool(const Case&)>& has = {});

// The limit of a worker: beyond that of what its judges supervise.
std::chrono::milliseconds WorkerLimit(const Subject& subject, std::chrono::milliseconds limit);

// "append CRASHED", "TIMED_OUT": of a case that ended its worker.
std::string LossSignature(const Subject& subject, const CaseEntry& entry, Outcome outcome,
                          int64_t step);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_SUBJECT_H_
