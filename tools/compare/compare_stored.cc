// compare GOLD GOT where GOLD has no schema: tensor by tensor, matched by name.

#include "tools/compare/compare_stored.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "reference/spec/error.h"
#include "tools/compare/across_tensors.h"
#include "tools/compare/certify.h"
#include "tools/compare/loose_rows.h"
#include "tools/compare/looser.h"
#include "tools/compare/pairs.h"
#include "tools/compare/selection.h"
#include "tools/compare/slice.h"
#include "tools/compare/tensor_equal.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

SelectionOptions SelectionOf(const CompareQuestion& asked) {
  SelectionOptions selection;
  selection.include = ParseGlobs(asked.include);
  selection.exclude = ParseGlobs(asked.exclude);
  selection.allow_missing = ParseGlobs(asked.allow_missing);
  selection.allow_extra = ParseGlobs(asked.allow_extra);
  for (const std::string& file : asked.map_file) {
    selection.renames.AddFile(ReadText(asked, file), file);
  }
  for (const std::string& text : asked.map) selection.renames.AddSubstitution(text);
  if (!asked.shard.empty()) selection.shard = ParseShard(asked.shard);
  return selection;
}

std::string CommandOf(const CompareQuestion& asked, const StoredFile& gold, const StoredFile& got,
                      const std::string& name) {
  std::string command =
      fmt::format("kvcheck compare {} {} --include {}{}", ShellWord(gold.path()),
                  ShellWord(got.path()), ShellWord(Glob::Of(name)), PlanArguments(asked));
  for (const std::string& rename : asked.map) command += " --map " + ShellWord(rename);
  return command;
}

// What the failing tensors have in common; of those that were compared.
std::vector<std::string> PatternsOf(const std::vector<ComparePair>& pairs,
                                    const std::vector<TensorOutcome>& outcomes, LockedFile& gold,
                                    LockedFile& got, const Cancel& cancel) {
  const auto failed = [](const TensorOutcome& outcome) { return outcome.failed; };
  if (std::none_of(outcomes.begin(), outcomes.end(), failed)) return {};
  std::map<std::string, std::string> got_paths;
  for (const ComparePair& pair : pairs) got_paths[pair.names.name] = pair.names.got;
  std::vector<std::string> patterns = DescribeAcrossTensors(outcomes);
  for (std::string& line : DescribeOrder(
           outcomes,
           [&](const std::string& a, const std::string& b) {
             return TensorsLookEqual(gold, a, got, got_paths.at(b));
           },
           [&](const std::string& a, const std::string& b) {
             return TensorsAreEqual(gold, a, got, got_paths.at(b), cancel);
           })) {
    patterns.push_back(std::move(line));
  }
  return patterns;
}

// The same tensor of one file under two paths, hard and symbolic links among them; of folders, the
// shards that have it.
bool IsItself(const ComparePair& pair, const StoredFile& gold, const StoredFile& got) {
  if (pair.standing != PairStanding::kComparable || !pair.names.in_gold || pair.names.got.empty()) {
    return false;
  }
  const TensorOrigin a = gold.source().OriginOf(pair.names.name);
  const TensorOrigin b = got.source().OriginOf(pair.names.got);
  std::error_code ignored;
  return a.tensor == b.tensor && std::filesystem::equivalent(a.file, b.file, ignored);
}

// A tensor beside itself is what it is, and proves nothing.
void MistrustSelf(Verdict* verdict) {
  if (verdict->outcome != Outcome::kPass) return;
  const std::string reason = "compared with itself: GOLD and GOT are one file";
  verdict->outcome = Outcome::kMistrusted;
  verdict->reasons.push_back(reason);
  for (OutputVerdict& output : verdict->outputs) {
    output.outcome = Outcome::kMistrusted;
    output.reasons.push_back(reason);
  }
}

// What the summary says beside the counts of verdicts, of the pairs that were reported.
TensorCounts CountsOf(const Selection& selection, std::span<const ComparePair> pairs) {
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

std::string SelectionArguments(const CompareQuestion& asked) {
  std::string text;
  for (const auto& [name, values] : {std::pair{"--include", &asked.include},
                                     {"--exclude", &asked.exclude},
                                     {"--map-file", &asked.map_file},
                                     {"--map", &asked.map}}) {
    for (const std::string& value : *values) text += fmt::format(" {} {}", name, ShellWord(value));
  }
  return text;
}

namespace {

// What is compared with what, by which rule.
struct PlannedPairs {
  Selection selection;
  std::vector<ComparePair> pairs;
};

PlannedPairs PlanOf(const CompareQuestion& asked, const StoredFile& gold, const StoredFile& got) {
  const RuleSet rules = RulesOf(asked);
  SelectionOptions selecting = SelectionOf(asked);
  selecting.format_of = [&](const std::string& name) -> std::optional<KvFormat> {
    const auto* rule = std::get_if<CodecRule>(&rules.Of(name).tolerance);
    if (rule == nullptr || IsPlain(rule->format)) return std::nullopt;
    return rule->format;
  };
  PlannedPairs planned;
  planned.selection = SelectTensors(gold.source().index(), got.source().index(), selecting);
  rules.CheckUsed(planned.selection.all_names);
  const std::vector<AxisSlice> slices =
      asked.slice.empty() ? std::vector<AxisSlice>() : ParseSlice(asked.slice);
  planned.pairs =
      PlanPairs(std::move(planned.selection.pairs), gold.source(), got.source(), rules, slices);
  return planned;
}

JudgeCall JudgeOf(const CompareQuestion& asked) {
  return [&asked](const ExpectedSource& expected, const ObservedSource& observed,
                  const SpecialPolicy& special) {
    JudgeOptions judge_options = asked.judge;
    judge_options.special = special;
    return Judge(CancellableSource(expected, asked.cancel), observed, judge_options);
  };
}

}  // namespace

void BlessStored(const CompareQuestion& asked, const StoredFile& gold, const StoredFile& got,
                 const std::function<void(const std::string& line)>& tell) {
  LockedFile gold_file = {gold.source(), {}};
  LockedFile got_file = {got.source(), {}};
  const std::vector<ComparePair> pairs = PlanOf(asked, gold, got).pairs;
  BlessPairs(asked, pairs, gold_file, got_file, JudgeOf(asked), tell);
}

void CompareStored(const CompareQuestion& asked, const StoredFile& gold, const StoredFile& got,
                   const MappedFile* gold_bytes, const MappedFile* got_bytes, ResultSink* results) {
  const auto [selection, pairs] = PlanOf(asked, gold, got);
  LockedFile gold_file = {gold.source(), {}};
  LockedFile got_file = {got.source(), {}};
  const JudgeCall judge = JudgeOf(asked);
  const int threads = asked.judge.threads;
  results->Begin(static_cast<int64_t>(pairs.size()));
  const auto finish = [&, &selection = selection, &pairs = pairs](size_t reported) {
    results->SetTensors(CountsOf(selection, std::span(pairs).first(reported)));
  };
  const EmptyPairs empty = StandingOfEmpty(pairs);
  Certificates certified;
  try {
    if (!asked.full_statistics) {
      certified = CertifyPairs(pairs, {gold_file, gold_bytes}, {got_file, got_bytes}, threads,
                               asked.cancel);
    }
  } catch (const Cancelled&) {
    results->SetInterrupted();
    return finish(0);
  }
  std::vector<TensorOutcome> outcomes;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const ComparePair& pair = pairs[i];
    CaseResult result;
    result.name = pair.names.name;
    result.verdict.command = CommandOf(asked, gold, got, pair.names.name);
    const bool goes_on = results->Judge(std::move(result), [&, &pair = pair] {
      const PassSummary* summary = certified.Of(i);
      LooseCounts loose;
      if (summary != nullptr) {
        loose = CountLoose(pair, gold_file, got_file, *summary, threads);
        // What there is to say of it, the judge says.
        if (IsWorthSaying(loose, *summary)) summary = nullptr;
      }
      Verdict verdict = summary != nullptr ? CertifiedVerdict(pair, gold_file, got_file, *summary)
                                           : JudgePair(pair, gold_file, got_file, empty, judge);
      if (summary != nullptr) verdict.outputs.front().counts.loose = loose.loose;
      if (auto looser = LooserThanFormat(pair, gold_file, got_file, threads)) {
        verdict.warnings.push_back(std::move(*looser));
      }
      if (IsItself(pair, gold, got)) MistrustSelf(&verdict);
      if (!verdict.outputs.empty()) {
        outcomes.push_back({pair.names.name, verdict.outcome == Outcome::kFail});
      }
      return verdict;
    });
    if (!goes_on) return finish(i);
  }
  try {
    results->SetPatterns(PatternsOf(pairs, outcomes, gold_file, got_file, asked.cancel));
  } catch (const Cancelled&) {
    results->SetInterrupted();
  }
  for (const StoredFile* file : {&gold, &got}) {
    if (auto note = NotNamedByIndex(*file)) results->AddNote(std::move(*note));
  }
  finish(pairs.size());
}

}  // namespace kvcheck
