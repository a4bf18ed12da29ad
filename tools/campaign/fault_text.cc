#include "tools/campaign/fault_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

using Cells = std::vector<std::string>;

// Columns as wide as their widest cell.
std::string Aligned(const std::vector<Cells>& rows) {
  std::vector<size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string Markdown(const std::vector<Cells>& rows) {
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    text += fmt::format("| {} |\n", fmt::join(rows[i], " | "));
    if (i > 0) continue;
    text += "|";
    for (size_t column = 0; column < rows[i].size(); ++column) text += "---|";
    text += "\n";
  }
  return text;
}

std::string WordOf(const FaultOutcome& outcome) {
  return outcome.failures.empty() ? "caught" : "FAILED";
}

std::string SizesOf(const FaultOutcome& outcome) {
  return outcome.caught ? fmt::format("{} -> {}", outcome.elements, outcome.shrunk) : "-";
}

Cells OutcomeCells(const FaultOutcome& outcome) {
  Cells cells = {
      std::string(outcome.fault.text->id),       std::string(Name(outcome.fault.kind)),
      std::string(outcome.fault.text->property), outcome.caught ? outcome.drawn.check : "-",
      fmt::format("{}", outcome.cases),          SizesOf(outcome)};
  for (const bool rejected : outcome.rejected) {
    cells.emplace_back(!outcome.caught ? "-" : rejected ? "sees" : "blind");
  }
  return cells;
}

Cells OutcomeHeads() {
  Cells heads = {"fault", "kind", "property", "caught by", "cases", "size"};
  for (const std::string_view rule : kOtherRules) heads.emplace_back(rule);
  return heads;
}

nlohmann::ordered_json JsonOf(const Fault& fault) {
  const FaultText& text = *fault.text;
  return {{"id", text.id},
          {"kind", Name(fault.kind)},
          {"rule", text.rule},
          {"description", text.description},
          {"reports", SplitWords(text.reports, " ")},
          {"property", text.property},
          {"checks", SplitWords(text.checks, " | ")},
          {"smallest", text.smallest},
          {"plan", text.plan},
          {"profile", text.profile}};
}

}  // namespace

std::string FaultListText(std::span<const Fault> faults) {
  std::vector<Cells> rows = {{"fault", "kind", "rule", "property", "what is wrong", "reports"}};
  for (const Fault& fault : faults) {
    const FaultText& text = *fault.text;
    rows.push_back({std::string(text.id), std::string(Name(fault.kind)), std::string(text.rule),
                    std::string(text.property), std::string(text.description),
                    std::string(text.reports)});
  }
  return Aligned(rows) + Plural(std::ssize(faults), "fault") + "\n";
}

std::string CoverageTable() {
  std::map<std::string, Cells> covered;
  for (const Fault& fault : AllFaults()) {
    for (const std::string_view report : SplitWords(fault.text->reports, " ")) {
      covered[std::string(report)].emplace_back(fault.text->id);
    }
  }
  for (const UncoveredReport& report : UncoveredReports()) {
    covered[std::string(report.id)] = {fmt::format("none: {}", report.reason)};
  }
  std::vector<Cells> rows = {{"id", "faults that stand for it"}};
  for (const auto& [report, by] : covered)
    rows.push_back({report, fmt::format("{}", fmt::join(by, ", "))});
  return Markdown(rows);
}

namespace {

// How soon faults are caught and how near shrinking comes to the smallest cases known; "" where
// none was caught.
std::string CostSummary(std::span<const FaultOutcome> outcomes) {
  std::vector<double> seconds;
  std::vector<int64_t> longer;  // traces: operations more than the smallest case has
  for (const FaultOutcome& outcome : outcomes) {
    if (!outcome.caught) continue;
    seconds.push_back(outcome.seconds);
    if (!IsOfTensors(outcome.fault.kind)) longer.push_back(outcome.shrunk - outcome.smallest_size);
  }
  if (seconds.empty()) return "";
  std::sort(seconds.begin(), seconds.end());
  std::string text = fmt::format("until caught, on one core: median {:.3f} s, at most {:.3f} s\n",
                                 seconds[seconds.size() / 2], seconds.back());
  if (longer.empty()) return text;
  const auto close =
      std::count_if(longer.begin(), longer.end(), [](int64_t more) { return more <= 2; });
  return text + fmt::format(
                    "shrunk traces: {} of {} at most 2 operations longer than the smallest "
                    "case, the longest {}\n",
                    close, longer.size(), *std::max_element(longer.begin(), longer.end()));
}

}  // namespace

std::string RunText(std::span<const FaultOutcome> outcomes, bool times, bool quiet) {
  std::vector<Cells> rows;
  rows.push_back(OutcomeHeads());
  rows.back().insert(rows.back().begin(), "");
  if (times) rows.back().emplace_back("seconds");
  for (const FaultOutcome& outcome : outcomes) {
    if (quiet && outcome.failures.empty()) continue;
    rows.push_back(OutcomeCells(outcome));
    rows.back().insert(rows.back().begin(), WordOf(outcome));
    if (times) rows.back().push_back(fmt::format("{:.3f}", outcome.seconds));
  }
  std::string text = rows.size() > 1 ? Aligned(rows) : "";
  for (const FaultOutcome& outcome : outcomes) {
    for (const std::string& failure : outcome.failures) {
      text += fmt::format("FAILED  {}  {}\n", outcome.fault.text->id, failure);
    }
  }
  return text + RunSummary(outcomes) + "\n" + (times ? CostSummary(outcomes) : "");
}

std::string RunSummary(std::span<const FaultOutcome> outcomes) {
  int64_t fine = 0;
  std::array<int64_t, kOtherRules.size()> blind{};
  for (const FaultOutcome& outcome : outcomes) {
    fine += outcome.failures.empty() ? 1 : 0;
    for (size_t i = 0; i < blind.size(); ++i) {
      blind[i] += outcome.caught && !outcome.rejected[i] ? 1 : 0;
    }
  }
  std::vector<std::string> others;
  for (size_t i = 0; i < blind.size(); ++i) {
    others.push_back(fmt::format("{} {}", kOtherRules[i], blind[i]));
  }
  const int64_t failed = std::ssize(outcomes) - fine;
  return fmt::format(
      "{}: {} caught by a check that its line names, without a false alarm{}; on the cases that "
      "were caught, blind are {}",
      Plural(std::ssize(outcomes), "fault"), fine,
      failed == 0 ? "" : fmt::format(", {} FAILED", failed), fmt::join(others, ", "));
}

std::string RunTable(std::span<const FaultOutcome> outcomes) {
  std::vector<Cells> rows = {OutcomeHeads()};
  rows[0].emplace_back("what is wrong");
  for (const FaultOutcome& outcome : outcomes) {
    rows.push_back(OutcomeCells(outcome));
    rows.back().emplace_back(outcome.fault.text->description);
  }
  return "# What the checks are worth\n\n"
         "Written by `kvcheck faults run --table tools/faults/TABLE.md`; a test compares. How to "
         "read it: [README.md](README.md).\n\n" +
         Markdown(rows) + "\n" + RunSummary(outcomes) + ".\n";
}

std::string ListJson(std::span<const Fault> faults, const std::string& tool) {
  nlohmann::ordered_json json = {{"schema", 1}, {"tool", tool}};
  for (const Fault& fault : faults) json["faults"].push_back(JsonOf(fault));
  for (const UncoveredReport& report : UncoveredReports()) {
    json["uncovered"].push_back({{"id", report.id}, {"reason", report.reason}});
  }
  return json.dump(1) + "\n";
}

std::string RunJson(std::span<const FaultOutcome> outcomes, bool times, const std::string& tool,
                    bool interrupted) {
  nlohmann::ordered_json json = {
      {"schema", 1}, {"tool", tool}, {"seed", kFaultSeed}, {"interrupted", interrupted}};
  json["faults"] = nlohmann::ordered_json::array();
  for (const FaultOutcome& outcome : outcomes) {
    nlohmann::ordered_json one = JsonOf(outcome.fault);
    one["outcome"] = outcome.failures.empty() ? "caught" : "failed";
    one["failures"] = outcome.failures;
    one["smallest_check"] = outcome.smallest.check;
    one["smallest_hits"] = outcome.smallest.hits;
    one["smallest_size"] = outcome.smallest_size;
    one["caught"] = outcome.caught;
    one["caught_by"] = outcome.drawn.check;
    one["reason"] = outcome.drawn.reason;
    one["hits"] = outcome.drawn.hits;
    one["cases"] = outcome.cases;
    one["size"] = outcome.elements;
    one["shrunk"] = outcome.shrunk;
    one["shrunk_command"] = outcome.shrunk_command;
    for (size_t i = 0; i < kOtherRules.size(); ++i) {
      one["seen_by"][std::string(kOtherRules[i])] = static_cast<bool>(outcome.rejected[i]);
    }
    if (times) one["seconds"] = outcome.seconds;
    json["faults"].push_back(std::move(one));
  }
  json["summary"] = RunSummary(outcomes);
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::vector<CaseResult> ResultsOf(std::span<const FaultOutcome> outcomes) {
  std::vector<CaseResult> results;
  for (const FaultOutcome& outcome : outcomes) {
    CaseResult result;
    result.name = std::string(outcome.fault.text->id);
    result.verdict.case_text = std::string(outcome.fault.text->smallest);
    result.verdict.implementation = FaultyName(outcome.fault);
    result.verdict.command = fmt::format("kvcheck faults explain {}", outcome.fault.text->id);
    result.verdict.reasons = outcome.failures;
    if (!outcome.failures.empty()) result.verdict.outcome = Outcome::kFail;
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace kvcheck
