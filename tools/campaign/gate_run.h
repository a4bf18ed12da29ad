// Every case of the suites and a budget of drawn cases, on an implementation, past what is known to
// fail.

#ifndef TOOLS_CAMPAIGN_GATE_RUN_H_
#define TOOLS_CAMPAIGN_GATE_RUN_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "tools/campaign/fuzz_run.h"
#include "tools/compare/selection.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/progress.h"
#include "tools/corridor/result_sink.h"

namespace kvcheck {

inline constexpr int64_t kDefaultGateCases = 20'000;
// One for each layout and format that a signature shows in, as far as it goes.
inline constexpr int64_t kDefaultShrinkCases = 8;

struct GateQuestion {
  std::string implementation;       // "": optimized
  std::vector<std::string> suites;  // files and folders; empty: those that come with kvcheck
  // Drawn cases, of traces; fewer of the other kinds. Or for how long.
  int64_t fuzz_cases = kDefaultGateCases;
  std::optional<std::chrono::milliseconds> fuzz_time;
  uint64_t seed = 1;
  std::string known;  // file of known failures; "": none
  Shard shard;
  std::chrono::milliseconds limit{10'000};  // since the last progress of a case
  std::string out;                          // folder of .case files; "": none
  int max_unproved = kDefaultMaxUnproved;   // percent
  int64_t shrink_cases = kDefaultShrinkCases;
  // What was not known, as entries of a file of known failures; "": not written.
  std::string write_known;
  std::string expires;
  std::string reason;
  bool stop_at_new = false;
  JudgeOptions judge;  // of the suites' cases; threads are filled in
  int workers = 1;
  bool quiet = false;
  Cancel cancel{};
};

// Errors: kUsage, kSelection, kUnreadableFile, ...: before the first result; Cancelled.
void RunGate(const GateQuestion& question, Progress* progress, ResultSink* results);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_GATE_RUN_H_
