// Where the results of a question of many cases go as they come.

#ifndef TOOLS_CORRIDOR_RESULT_SINK_H_
#define TOOLS_CORRIDOR_RESULT_SINK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reference/judge/verdict.h"
#include "tools/report/case_result.h"
#include "tools/report/summary.h"

namespace kvcheck {

// One of many cases that know nothing of each other.
struct PlannedCase {
  CaseResult result;  // what is known before it is judged
  // A case of little work is judged by one thread, beside others; a large one by all threads.
  bool is_large = false;
  std::function<Verdict(int threads)> evaluate;
};

class ResultSink {
 public:
  virtual ~ResultSink() = default;
  // Before the first result: how many there will be.
  virtual void Begin(int64_t total) = 0;
  // Fills result.verdict by calling evaluate and takes it. What cannot be put (a malformed case, a
  // missing input) becomes ILLEGAL_CASE, what this build cannot do UNSUPPORTED; an unreadable file
  // ends the run. The verdict's command, case text and implementation are kept from `result` where
  // evaluate leaves them empty. False when the run was cut short: the caller stops.
  virtual bool Judge(CaseResult result, const std::function<Verdict()>& evaluate) = 0;
  // The same of many, by so many threads: results are taken in the order of the cases, and neither
  // they nor their order depend on the number of threads. Where the run is cut short, all that were
  // judged are taken.
  virtual bool JudgeAll(std::vector<PlannedCase> cases, int threads) {
    for (PlannedCase& one : cases) {
      if (!Judge(std::move(one.result), [&] { return one.evaluate(threads); })) return false;
    }
    return true;
  }
  virtual void Add(const CaseResult& result) = 0;
  virtual void AddNote(std::string note) = 0;
  virtual void SetInterrupted() = 0;
  virtual void AddCampaign(CampaignCounts campaign) = 0;
  // Of a comparison tensor by tensor.
  virtual void SetTensors(const TensorCounts& counts) = 0;
  virtual void SetPatterns(std::vector<std::string> patterns) = 0;
};

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_RESULT_SINK_H_
