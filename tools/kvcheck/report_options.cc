#include "tools/kvcheck/report_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "reference/spec/error.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {
namespace {

// Regular files alone: a pipe or /dev/null may be named twice.
bool IsOneFile(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (a.empty() || b.empty() || a == "-") return false;
  if (!std::filesystem::exists(a, ignored)) {
    return std::filesystem::path(a).lexically_normal() ==
           std::filesystem::path(b).lexically_normal();
  }
  return std::filesystem::is_regular_file(a, ignored) && std::filesystem::equivalent(a, b, ignored);
}

}  // namespace

JudgeOptions CommonOptions::Judge() const {
  JudgeOptions judge;
  judge.threads = threads;
  judge.rule = rule;
  judge.must_see = MustSee(must_see, text.strict, rule);
  judge.strict = text.strict;
  judge.sample_rows = sample_rows;
  judge.sample_seed = sample_seed;
  return judge;
}

std::string CommonOptions::JudgeArguments() const { return kvcheck::JudgeArguments(Judge()); }

void CheckReportPlaces(const std::vector<ReportPlace>& reports,
                       const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < reports.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const std::string options = reports[j].option + ", " + reports[i].option;
      if (reports[i].path == "-" && reports[j].path == "-") {
        throw Error(ErrorCode::kUsage, "only one report can go to standard output", options);
      }
      if (IsOneFile(reports[j].path, reports[i].path)) {
        throw Error(ErrorCode::kUsage, "two reports cannot go to one file", options);
      }
    }
    for (const std::string& input : inputs) {
      if (!IsOneFile(reports[i].path, input)) continue;
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} is an input, and would be overwritten: name another file",
                              reports[i].path),
                  reports[i].option);
    }
  }
}

void CommonOptions::Check(const std::vector<std::string>& inputs) const {
  CheckReportPlaces({{"--json", json}, {"--junit", junit}, {"--html", html}}, inputs);
  if (!github) return;
  if (json == "-" || junit == "-" || html == "-") {
    throw Error(ErrorCode::kUsage,
                "annotations go to standard output, where another report goes: name it a file",
                "--github");
  }
}

std::string StepSummary() {
  const char* path = std::getenv("GITHUB_STEP_SUMMARY");
  return path == nullptr ? "" : path;
}

std::chrono::milliseconds ParseDuration(const std::string& text, const std::string& option) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string unit = text.substr(end);
  const std::pair<const char*, double> units[] = {
      {"", 1e3}, {"ms", 1.0}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}};
  const auto* found = std::find_if(std::begin(units), std::end(units),
                                   [&](const auto& known) { return unit == known.first; });
  double number = -1;
  try {
    size_t used = 0;
    number = std::stod(text.substr(0, end), &used);
    if (used != end) number = -1;
  } catch (const std::exception&) {
    number = -1;
  }
  // Ten years, so that no clock overflows.
  if (found == std::end(units) || !(number >= 0) || number * found->second > 3.2e11) {
    throw Error(ErrorCode::kUsage, fmt::format("'{}' is no time: 30, 30s, 500ms, 5m or 1h", text),
                option);
  }
  return std::chrono::milliseconds(static_cast<int64_t>(number * found->second));
}

}  // namespace kvcheck
