#include "tools/kvcheck/run_report.h"

#include <fmt/format.h>

#include <iostream>

#include "reference/spec/error.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/report/json_report.h"
#include "tools/report/junit_report.h"
#include "tools/report/output_file.h"

namespace kvcheck {
std::string ToolVersion() { return "kvcheck " KVCHECK_VERSION; }

RunReport::RunReport(std::string suite, const CommonOptions& options, int64_t total)
    : suite_(std::move(suite)),
      options_(options),
      total_(total),
      progress_(options.text.quiet),
      prints_text_(options.json != "-" && options.junit != "-"),
      text_(options.text, std::cout) {}

bool RunReport::Judge(CaseResult result, const std::function<Verdict()>& evaluate) {
  if (IsInterruptRequested()) {
    summary_.interrupted = true;
    return false;
  }
  ++started_;
  progress_.Show(fmt::format("{} of {}: {}", started_, total_, Title(result)));
  Verdict verdict;
  try {
    verdict = evaluate();
  } catch (const Interrupted&) {
    progress_.Clear();
    summary_.interrupted = true;
    return false;
  } catch (const Error& error) {
    progress_.Clear();
    if (error.code() == ErrorCode::kUnreadableFile) throw;
    const std::string reason = error.context().empty()
                                   ? error.message()
                                   : fmt::format("{}: {}", error.context(), error.message());
    verdict = WithoutJudging(
        error.code() == ErrorCode::kUnsupported ? Outcome::kUnsupported : Outcome::kIllegalCase,
        reason);
  }
  progress_.Clear();
  const Verdict known = std::move(result.verdict);
  result.verdict = std::move(verdict);
  const auto keep = [&](std::string Verdict::* field) {
    if ((result.verdict.*field).empty()) result.verdict.*field = known.*field;
  };
  keep(&Verdict::case_text);
  keep(&Verdict::implementation);
  keep(&Verdict::command);
  Add(std::move(result));
  return true;
}

void RunReport::Add(CaseResult result) {
  summary_.Add(result, options_.text.strict);
  if (prints_text_) text_.Add(result);
  if (!options_.json.empty() || !options_.junit.empty()) results_.push_back(std::move(result));
}

int RunReport::Finish() {
  if (prints_text_) text_.Finish(summary_);
  if (!options_.json.empty()) {
    WriteOutput(options_.json, JsonReport(results_, summary_, options_.text.strict, ToolVersion()));
  }
  if (!options_.junit.empty()) {
    WriteOutput(options_.junit, JunitReport(results_, summary_, suite_, options_.text));
  }
  return summary_.ExitCode();
}

}  // namespace kvcheck
