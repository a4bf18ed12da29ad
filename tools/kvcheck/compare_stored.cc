// compare GOLD GOT where GOLD has no schema: tensor by tensor, by path.

#include <fmt/format.h>

#include <set>
#include <tuple>

#include "reference/judge/tensor_source.h"
#include "tools/kvcheck/compare_options.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

TensorMap LoadTensors(const StoredFile& file, const DatasetNames& datasets) {
  TensorMap tensors;
  for (const auto& [name, dataset] : datasets) tensors[name] = ReadTensor(file.source(), dataset);
  return tensors;
}

}  // namespace

int CompareStored(const CompareOptions& options, const StoredFile& gold, const StoredFile& got) {
  const ToleranceRule rule = RuleOf(options);
  std::set<std::string> paths;
  for (const StoredFile* file : {&gold, &got}) {
    for (const auto& [path, record] : file->source().index().objects) {
      if (!record.is_dataset && record.problem.empty()) continue;
      if (Matches(options.only, path)) paths.insert(path);
    }
  }
  const auto has = [](const StoredFile& file, const std::string& path) {
    const auto found = file.source().index().objects.find(path);
    return found != file.source().index().objects.end() &&
           (found->second.is_dataset || !found->second.problem.empty());
  };
  RunReport report("compare", options.common, static_cast<int64_t>(paths.size()));
  for (const std::string& path : paths) {
    CaseResult result;
    result.name = path;
    result.verdict.command =
        fmt::format("kvcheck compare {} {} --only {}{}", ShellWord(gold.path()),
                    ShellWord(got.path()), ShellWord(path), PlanArguments(options));
    const bool more = report.Judge(std::move(result), [&] {
      for (const auto& [file, other, word] :
           {std::tuple{&got, &gold, "missing"}, {&gold, &got, "extra"}}) {
        if (has(*file, path)) continue;
        return WithoutJudging(Outcome::kFail, fmt::format("{}: {} has it, {} has not", word,
                                                          other->path(), file->path()));
      }
      // Left out in silence it would count as compared; what else is in the file may still pass.
      for (const StoredFile* file : {&gold, &got}) {
        const std::string& problem = file->source().index().objects.at(path).problem;
        if (problem.empty()) continue;
        return WithoutJudging(Outcome::kMistrusted,
                              fmt::format("not compared: {} cannot be read from {}: {}", path,
                                          file->path(), problem));
      }
      std::map<std::string, RuledTensor> expected;
      expected["tensor"] = {ReadTensor(gold.source(), path), rule};
      return JudgeTensors(std::move(expected), LoadTensors(got, {{"tensor", path}}),
                          options.common.Judge(0));
    });
    if (!more) break;
  }
  return report.Finish();
}

}  // namespace kvcheck
