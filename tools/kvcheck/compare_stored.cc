// compare GOLD GOT where GOLD has no schema: tensor by tensor, matched by name.

#include <fmt/format.h>

#include <set>

#include "reference/spec/error.h"
#include "tools/compare/pairs.h"
#include "tools/compare/selection.h"
#include "tools/compare/slice.h"
#include "tools/kvcheck/compare_options.h"
#include "tools/kvcheck/evaluate_case.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

SelectionOptions SelectionOf(const CompareOptions& options) {
  SelectionOptions selection;
  selection.include = ParseGlobs(options.include);
  selection.exclude = ParseGlobs(options.exclude);
  selection.allow_missing = ParseGlobs(options.allow_missing);
  selection.allow_extra = ParseGlobs(options.allow_extra);
  for (const std::string& file : options.map_file) {
    selection.renames.AddFile(ReadText(file), file);
  }
  for (const std::string& text : options.map) selection.renames.AddSubstitution(text);
  if (!options.shard.empty()) selection.shard = ParseShard(options.shard);
  return selection;
}

std::string CommandOf(const CompareOptions& options, const StoredFile& gold, const StoredFile& got,
                      const std::string& name) {
  std::string command =
      fmt::format("kvcheck compare {} {} --include {}{}", ShellWord(gold.path()),
                  ShellWord(got.path()), ShellWord(Glob::Of(name)), PlanArguments(options));
  for (const std::string& rename : options.map) command += " --map " + ShellWord(rename);
  return command;
}

// What the summary says beside the counts of verdicts.
TensorCounts CountsOf(const Selection& selection, const std::vector<ComparePair>& pairs) {
  TensorCounts counts;
  std::set<std::string> rules;
  for (const ComparePair& pair : pairs) {
    if (pair.standing == PairStanding::kMissing) ++counts.missing;
    if (pair.standing == PairStanding::kExtra) ++counts.extra;
    if (pair.standing != PairStanding::kComparable) continue;
    ++counts.compared;
    counts.bytes += pair.bytes;
    rules.insert(pair.rule.where + " " + Print(pair.rule.tolerance));
  }
  counts.allowed_missing = static_cast<int64_t>(selection.allowed_missing.size());
  counts.allowed_extra = static_cast<int64_t>(selection.allowed_extra.size());
  counts.rules = static_cast<int64_t>(rules.size());
  return counts;
}

}  // namespace

int CompareStored(const CompareOptions& options, const StoredFile& gold, const StoredFile& got) {
  const Selection selection =
      SelectTensors(gold.source().index(), got.source().index(), SelectionOf(options));
  const RuleSet rules = RulesOf(options);
  rules.CheckUsed(selection.all_names);
  const std::vector<AxisSlice> slices =
      options.slice.empty() ? std::vector<AxisSlice>() : ParseSlice(options.slice);
  const std::vector<ComparePair> pairs =
      PlanPairs(selection, gold.source(), got.source(), rules, slices);

  // Thousands of tensors that agree are not worth a line each.
  CommonOptions common = options.common;
  common.text.quiet = !common.text.verbose;
  RunReport report("compare", common, static_cast<int64_t>(pairs.size()));
  report.SetTensors(CountsOf(selection, pairs));
  LockedFile gold_file = {gold.source(), {}};
  LockedFile got_file = {got.source(), {}};
  const JudgeCall judge = [&](const ExpectedSource& expected, const ObservedSource& observed,
                              const SpecialPolicy& special) {
    JudgeOptions judge_options = common.Judge(0);
    judge_options.special = special;
    return Judge(InterruptibleSource(expected), observed, judge_options);
  };
  for (const ComparePair& pair : pairs) {
    CaseResult result;
    result.name = pair.names.name;
    result.verdict.command = CommandOf(options, gold, got, pair.names.name);
    if (!report.Judge(std::move(result),
                      [&] { return JudgePair(pair, gold_file, got_file, judge); })) {
      break;
    }
  }
  return report.Finish();
}

}  // namespace kvcheck
