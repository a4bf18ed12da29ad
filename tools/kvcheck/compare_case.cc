// compare --case: one file that holds the inputs and the outputs of a case, and no golden file.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/spec/error.h"
#include "tools/kvcheck/compare_options.h"
#include "tools/kvcheck/evaluate_case.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

// --map a=/x,b=/y is --map a=/x --map b=/y.
std::vector<std::string> SplitAtCommas(const std::vector<std::string>& entries) {
  std::vector<std::string> parts;
  for (const std::string& entry : entries) {
    for (const Piece& part : Split(WholeLine(entry), ',')) parts.emplace_back(part.text);
  }
  return parts;
}

DatasetNames ParseMap(const std::vector<std::string>& entries) {
  DatasetNames map;
  for (const std::string& entry : SplitAtCommas(entries)) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size()) {
      throw Error(ErrorCode::kUsage, "--map takes NAME=/path/to/dataset", entry);
    }
    std::string path = entry.substr(equals + 1);
    if (path.front() != '/') path.insert(path.begin(), '/');
    if (!map.emplace(entry.substr(0, equals), path).second) {
      throw Error(ErrorCode::kUsage, "--map names a tensor twice", entry);
    }
  }
  return map;
}

}  // namespace

int CompareCase(const CompareOptions& options) {
  const Case c = ParseCase(options.case_text);
  const StoredFile file(options.files.front());
  const DatasetNames map = ParseMap(options.map);
  const std::map<std::string, TensorSpec> inputs = InputSpecs(c);
  const std::map<std::string, TensorSpec> outputs = OutputSpecs(c);
  for (const auto& [name, path] : map) {
    if (!inputs.contains(name) && !outputs.contains(name)) {
      std::vector<std::string> known;
      for (const auto* specs : {&inputs, &outputs}) {
        for (const auto& [known_name, spec] : *specs) known.push_back(known_name);
      }
      throw Error(
          ErrorCode::kSelection,
          fmt::format("the case has no tensor '{}'; it has {}", name, fmt::join(known, ", ")),
          "--map");
    }
    DatasetRecord(file.source(), path);
  }
  const FileIndex& index = file.source().index();
  CaseResult result;
  result.verdict.case_text = Print(c);
  result.verdict.implementation = file.path();
  result.verdict.command = fmt::format("kvcheck compare --case {} {}{}", ShellWord(Print(c)),
                                       ShellWord(file.path()), PlanArguments(options));
  for (const std::string& entry : options.map) {
    result.verdict.command += " --map " + ShellWord(entry);
  }
  RunReport report("compare", options.common, 1);
  report.Judge(std::move(result), [&] {
    Question question;
    question.c = c;
    question.plan = PlanOf(options, "");
    question.profile = ProfileOf(options, "");
    const DatasetNames stored = FindByName(index, inputs, map);
    const DataSource& data = DataOf(c);
    question.inputs =
        data.IsFile() ? LoadInputs(file, c, stored) : GenerateCaseInputs(c, question.profile);
    const FileObserved observed(file, FindByName(index, outputs, map), c);
    return EvaluateCase(question, observed, options.common.Judge(CountStatistics(c)));
  });
  return report.Finish();
}

}  // namespace kvcheck
