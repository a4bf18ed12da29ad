#include "tools/kvcheck/run_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>

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

bool RunReport::Judge(CaseResult result, const std::function<Verdict()>& evaluate) {
  std::unique_lock lock(mutex_);
  if (IsInterruptRequested()) {
    summary_.interrupted = true;
    return false;
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
  AddHere(result);
  return true;
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
