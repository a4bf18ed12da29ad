// What judging attention costs: processor time of one thread and memory, by case, plan and rule.
// The answers are those of kvcheck's own kernel, so that whole outputs are judged and nothing is
// explained.

#ifndef TOOLS_MEASURE_JUDGE_BENCH_H_
#define TOOLS_MEASURE_JUDGE_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/verdict.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/progress.h"

namespace kvcheck {

struct JudgeQuestion {
  std::vector<std::string> cases;  // of attention, data=REGIME:SEED
  std::vector<std::string> plans;
  std::vector<Rule> rules = {Rule::kBound, Rule::kStatistics};
  int rounds = 3;
};

struct JudgeFigures {
  std::string case_text;
  std::string plan;
  Rule rule = Rule::kBound;
  Outcome outcome = Outcome::kPass;  // of a failure the time of its explanation is in the figures
  int rounds = 0;                    // that were measured: all, but where it was cancelled
  int64_t elements = 0;              // that were judged
  double seconds = 0;                // processor time, median of the rounds
  double ElementNs() const {
    return elements > 0 ? seconds * 1e9 / static_cast<double>(elements) : 0;
  }
  // The largest of the rounds, beyond inputs and outputs; by the system.
  std::optional<int64_t> resident_peak_bytes;
};

// Short cases of decoding and of prefill, and two plans.
std::vector<std::string> DefaultJudgeCases();
std::vector<std::string> DefaultJudgePlans();

// By case, plan and rule, which take turns in a round. progress: told before each; null: nobody is.
// so_far: told after each what was measured until then.
// Errors: kParse; kIllegalCase for a case that is no attention or reads its data; kUnsupported
// where memory does not hold it; Cancelled.
std::vector<JudgeFigures> MeasureJudge(
    const JudgeQuestion& question, const Cancel& cancel = {}, Progress* progress = nullptr,
    const std::function<void(std::vector<JudgeFigures>)>& so_far = {});

}  // namespace kvcheck

#endif  // TOOLS_MEASURE_JUDGE_BENCH_H_
