#include "tools/kvcheck/run_report.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>

#include "reference/judge/ordered_parallel.h"
#include "reference/spec/error.h"
#include "reference/spec/temporary_paths.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/notice.h"
#include "tools/report/output_file.h"
#include "tools/report/tool_version.h"

namespace kvcheck {

namespace {

// Colours only where a terminal shows them, and nobody forbids them (no-color.org).
TextOptions OnStandardOutput(TextOptions options) {
  const char* forbidden = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  options.colour = isatty(STDOUT_FILENO) != 0 && (forbidden == nullptr || *forbidden == '\0') &&
                   (terminal == nullptr || std::string_view(terminal) != "dumb");
  return options;
}

// What a case has freed the next one takes, and the system does not take it back between them: of
// small cases that is a fifth of their time.
void KeepFreedMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

}  // namespace

RunReport::RunReport(std::string suite, const CommonOptions& options)
    : suite_(std::move(suite)),
      options_(options),
      progress_(options.text.quiet),
      prints_text_(options.json != "-" && options.junit != "-" && options.html != "-"),
      text_(OnStandardOutput(options.text), std::cout) {}

RunReport::RunReport(std::string suite, const CommonOptions& options, int64_t total)
    : RunReport(std::move(suite), options) {
  RunReport::Begin(total);
}

void RunReport::Begin(int64_t total) {
  const std::lock_guard lock(mutex_);
  BeginHere(total);
}

void RunReport::BeginHere(int64_t total) {
  begun_ = true;
  total_ = total;
  if (!options_.json.empty()) json_.emplace(options_.json, options_.text.strict, ToolVersion());
  if (!options_.html.empty()) html_.emplace("kvcheck " + suite_, options_.text.strict);
  if (options_.github) github_.emplace("kvcheck " + suite_, options_.text);
  if (!options_.junit.empty()) junit_.emplace(options_.junit, suite_, options_.text);
}

std::optional<CaseResult> RunReport::Evaluated(CaseResult result,
                                               const std::function<Verdict()>& evaluate) {
  std::unique_lock lock(mutex_);
  if (IsInterruptRequested()) {
    summary_.interrupted = true;
    return std::nullopt;
  }
  ++started_;
  if (progress_.shown()) {
    progress_.Show(fmt::format("{} of {}: {}", started_, total_, Title(result)));
  }
  Verdict verdict;
  try {
    lock.unlock();
    const std::unique_ptr<std::unique_lock<std::mutex>, void (*)(std::unique_lock<std::mutex>*)>
        again(&lock, [](std::unique_lock<std::mutex>* held) { held->lock(); });
    verdict = evaluate();
  } catch (const Cancelled&) {
    progress_.Clear();
    summary_.interrupted = true;
    return std::nullopt;
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
  return result;
}

bool RunReport::Judge(CaseResult result, const std::function<Verdict()>& evaluate) {
  const std::optional<CaseResult> done = Evaluated(std::move(result), evaluate);
  if (done) Add(*done);
  return done.has_value();
}

void RunReport::TakeFinished() {
  while (!finished_cases_.empty() && finished_cases_.begin()->first == next_case_) {
    const std::optional<CaseResult> result =
        std::move(finished_cases_.extract(finished_cases_.begin()).mapped());
    ++next_case_;
    if (result) AddHere(*result);
  }
}

bool RunReport::JudgeAll(std::vector<PlannedCase> cases, int threads) {
  const auto judge = [&](size_t index, int threads_of_one) {
    PlannedCase& one = cases[index];
    std::optional<CaseResult> done =
        Evaluated(std::move(one.result), [&] { return one.evaluate(threads_of_one); });
    one.evaluate = nullptr;  // and what it holds
    const bool goes_on = done.has_value();
    const std::lock_guard lock(mutex_);
    finished_cases_.emplace(static_cast<int64_t>(index), std::move(done));
    TakeFinished();
    return goes_on;
  };
  {
    const std::lock_guard lock(mutex_);
    finished_cases_.clear();
    next_case_ = 0;
  }
  if (cases.size() > 1) KeepFreedMemory();
  bool goes_on = true;
  for (size_t begin = 0; begin < cases.size() && goes_on;) {
    size_t end = begin;
    while (end < cases.size() && !cases[end].is_large) ++end;
    // Later cases look at the interrupt themselves.
    OrderedParallelFor(
        static_cast<int64_t>(end - begin), threads,
        [&](int64_t i) { return judge(begin + static_cast<size_t>(i), 1); },
        [&](int64_t, bool is_judged) { goes_on = goes_on && is_judged; });
    if (end < cases.size() && goes_on) goes_on = judge(end++, threads);
    begin = end;
  }
  return goes_on;
}

void RunReport::Add(const CaseResult& result) {
  const std::lock_guard lock(mutex_);
  AddHere(result);
}

void RunReport::SetTensors(const TensorCounts& counts) {
  const std::lock_guard lock(mutex_);
  summary_.tensors = counts;
}

void RunReport::AddCampaign(CampaignCounts campaign) {
  const std::lock_guard lock(mutex_);
  summary_.Add(std::move(campaign));
}

void RunReport::AddNote(std::string note) {
  const std::lock_guard lock(mutex_);
  summary_.notes.push_back(std::move(note));
}

void RunReport::SetInterrupted() {
  const std::lock_guard lock(mutex_);
  summary_.interrupted = true;
}

void RunReport::SetPatterns(std::vector<std::string> patterns) {
  const std::lock_guard lock(mutex_);
  summary_.patterns = std::move(patterns);
}

void RunReport::WatchInterrupts() {
  watch_.emplace([this] { GiveUp(); });
}

void RunReport::GiveUp() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  progress_.Clear();
  if (!begun_) BeginHere(0);
  summary_.interrupted = true;
  for (const auto& [index, result] : finished_cases_) {
    if (result) AddHere(*result);
  }
  const int exit_code = FinishHere();
  std::cout.flush();
  RemoveTemporaries();
  // Other threads are at work: nothing of theirs may be destroyed.
  _exit(exit_code);
}

void RunReport::AddHere(const CaseResult& result) {
  summary_.Add(result, options_.text.strict);
  if (prints_text_) text_.Add(result);
  if (json_) json_->Add(result);
  if (junit_) junit_->Add(result);
  if (html_) html_->Add(result);
  if (github_) github_->Add(result);
}

void RunReport::WriteReports() {
  if (prints_text_) text_.Finish(summary_);
  if (json_) json_->Finish(summary_);
  if (junit_) junit_->Finish(summary_);
  if (html_) {
    html_->SetSummary(summary_);
    html_->Write(options_.html);
  }
  if (github_) {
    fmt::print("{}", github_->Annotations());
    if (const std::string path = StepSummary(); !path.empty()) {
      AppendOutput(path, github_->Markdown(summary_));
    } else {
      PrintNotice(
          "kvcheck: warning: --github: GITHUB_STEP_SUMMARY names no file, as it does in a workflow "
          "of GitHub: no summary is written");
    }
  }
}

int FinishInterrupted(const std::string& suite, const CommonOptions& options) {
  RunReport report(suite, options, 0);
  report.SetInterrupted();
  return report.Finish();
}

int RunReport::Finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  return FinishHere();
}

int RunReport::FinishHere() {
  int exit_code = summary_.ExitCode();
  bool is_lost = false;
  try {
    WriteReports();
  } catch (const Error& error) {
    is_lost = true;
    PrintNotice(fmt::format("kvcheck: error: {}: {}", error.context(), error.message()));
  }
  // tool_main.cc says why standard output was lost.
  const bool has_reader = !ReaderHasGone() || is_lost;
  is_lost = is_lost || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (is_lost) {
    if (has_reader) {
      PrintNotice(fmt::format("kvcheck: what the report would have said: {}", Print(summary_)));
    }
    if (exit_code == kExitPassed) exit_code = kExitNotPut;
  }
  return exit_code;
}

}  // namespace kvcheck
