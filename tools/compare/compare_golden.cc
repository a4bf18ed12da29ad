// compare GOLD GOT where GOLD has the schema: each of its cases against the outputs that GOT has
// for it. Expected values are computed from GOLD's inputs, or are those stored in GOLD.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "golden/schema.h"
#include "reference/judge/looseness.h"
#include "reference/judge/tensor_source.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "tools/compare/compare_question.h"
#include "tools/compare/looser.h"
#include "tools/compare/selection.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/recorded_trace.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

// The double next to hi + lo whose last bit is 1 unless the sum is hi: rounding it to any narrower
// type rounds hi + lo correctly.
double RoundedToOdd(double hi, double lo) {
  if (lo == 0 || !std::isfinite(hi) || (std::bit_cast<uint64_t>(hi) & 1) != 0) return hi;
  return std::nextafter(hi, lo > 0 ? HUGE_VAL : -HUGE_VAL);
}

// A stored expected output in the type that the case declares.
Tensor InDeclaredType(const ExpectedTensor& expected, const TensorSpec& spec) {
  Tensor tensor(spec.dtype, spec.shape);
  if (!expected.hi.shape.SameExtents(spec.shape)) {
    throw Error(ErrorCode::kMissingData,
                fmt::format("the stored expected values have shape {}, the case has {}",
                            ToString(expected.hi.shape), ToString(spec.shape)));
  }
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  const double* hi = expected.hi.As<double>();
  const double* lo = expected.lo ? expected.lo->As<double>() : nullptr;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool narrows = spec.dtype != DType::kFloat64 && lo != nullptr;
    values[i] = narrows ? RoundedToOdd(hi[i], lo[i]) : hi[i];
  }
  EncodeFrom(values, spec.dtype, tensor.bytes.data());
  return tensor;
}

// Judges against the expected values in GOLD under --tol.
Verdict JudgeStored(const CompareQuestion& asked, const TensorRule& rule, const StoredFile& gold,
                    const GoldenCase& outline, const Case& c, const StoredFile& got,
                    const StoredAnswer& answer) {
  std::map<std::string, RuledTensor> expected;
  const std::map<std::string, TensorSpec> specs = OutputSpecs(c);
  for (const auto& [name, tensor] : outline.expected) {
    const auto spec = specs.find(name);
    if (spec == specs.end()) continue;
    ExpectedTensor stored;
    const std::string group = CasePath(outline.name) + "/";
    stored.hi = ReadTensor(gold.source(), group + ExpectedDataset(name, false));
    if (tensor.lo) stored.lo = ReadTensor(gold.source(), group + ExpectedDataset(name, true));
    expected[name] = {InDeclaredType(stored, spec->second), rule.tolerance};
  }
  for (const auto& [name, spec] : specs) {
    if (expected.contains(name)) continue;
    throw Error(ErrorCode::kMissingData,
                fmt::format("the case asks for '{}', of which no expected values are stored", name),
                gold.path());
  }
  const FileObserved observed(got, answer.outputs, c);
  JudgeOptions judge = asked.judge;
  judge.special = rule.Special();
  Verdict verdict = Judge(RuledTensorSource(std::move(expected)), observed, judge);
  verdict.case_text = Print(c);
  return verdict;
}

struct CompareItem {
  const GoldenCase* outline = nullptr;
  std::optional<Case> c;  // absent when the text does not parse
  std::string problem;    // why
  std::optional<StoredAnswer> answer;
  std::string Name() const {
    return answer && !answer->impl.empty() ? outline->name + "/" + answer->impl : outline->name;
  }
};

// Which cases: --include, --exclude and --shard, and which may be in one file alone.
class CaseSelection {
 public:
  // Errors: kSelection for a pattern that matches no case of either file.
  CaseSelection(const CompareQuestion& asked, const StoredFile& gold, const StoredFile& got)
      : filter_(asked),
        allow_missing_(ParseGlobs(asked.allow_missing)),
        allow_extra_(ParseGlobs(asked.allow_extra)) {
    if (!asked.shard.empty()) shard_ = ParseShard(asked.shard);
    std::vector<std::string> names = gold.golden().CaseNames();
    if (got.IsGolden()) {
      for (std::string& name : got.golden().CaseNames()) names.push_back(std::move(name));
    }
    const std::pair<const char*, const std::vector<Glob>&> patterns[] = {
        {"--include", filter_.include()},
        {"--exclude", filter_.exclude()},
        {"--allow-missing", allow_missing_},
        {"--allow-extra", allow_extra_}};
    for (const auto& [option, globs] : patterns) {
      for (const Glob& glob : globs) {
        const auto matches = [&glob](const std::string& name) { return glob.Matches(name); };
        if (std::any_of(names.begin(), names.end(), matches)) continue;
        throw Error(ErrorCode::kSelection, fmt::format("'{}' matches no case", glob.text()),
                    option);
      }
    }
  }

  bool Selects(const std::string& name) const {
    return filter_.Selects(name) && shard_.Has(CasePath(name));
  }
  bool MayBeMissing(const std::string& name) const { return MatchesAny(allow_missing_, name); }
  bool MayBeExtra(const std::string& name) const { return MatchesAny(allow_extra_, name); }

 private:
  NameFilter filter_;
  std::vector<Glob> allow_missing_;
  std::vector<Glob> allow_extra_;
  Shard shard_;
};

std::vector<CompareItem> Items(const CompareQuestion& asked, const CaseSelection& selection,
                               const StoredFile& gold, const StoredFile& got) {
  std::vector<CompareItem> items;
  for (const GoldenCase& outline : gold.golden().outline().cases) {
    if (!selection.Selects(outline.name)) continue;
    CompareItem item;
    item.outline = &outline;
    try {
      item.c = ParseCase(outline.case_text);
    } catch (const Error& error) {
      item.problem = error.what();
      items.push_back(std::move(item));
      continue;
    }
    const size_t before = items.size();
    for (StoredAnswer& answer : FindAnswers(got.source().index(), outline.name, *item.c)) {
      if (!Matches(asked.implementation, answer.impl)) continue;
      items.push_back({&outline, item.c, "", std::move(answer)});
    }
    if (items.size() == before && !selection.MayBeMissing(outline.name)) {
      items.push_back(std::move(item));
    }
  }
  return items;
}

Question QuestionOf(const CompareQuestion& asked, const StoredFile& gold, const CompareItem& item) {
  Question question;
  question.c = *item.c;
  question.plan = PlanOf(asked, item.answer->plan);
  question.profile = ProfileOf(asked, item.answer->profile);
  question.inputs = GoldenInputs(gold, *item.outline, *item.c, question.profile);
  return question;
}

// A chosen rule beside the bound that it stands in for.
// Errors: kUsage for a line of --rules that is looser and does not say why.
void AddLooserWarning(const CompareQuestion& asked, const TensorRule& rule,
                      const Question& question, Verdict* verdict) {
  const std::unique_ptr<ExpectedSource> derived = MakeExpected(question);
  const CancellableSource source(*derived, asked.cancel);
  for (size_t output = 0; output < source.Outputs().size(); ++output) {
    const auto looser =
        FindLooseness(source, static_cast<int>(output), rule.tolerance, asked.judge.threads);
    if (!looser) continue;
    const std::string text =
        LooserText(rule.tolerance, source.Outputs()[output].name, "the derived bound", *looser);
    const bool is_line = rule.where != "--tol";
    if (is_line && rule.reason.empty()) {
      throw Error(ErrorCode::kUsage, text + ": say why with reason=\"...\", or write derived",
                  rule.where);
    }
    verdict->warnings.push_back(is_line ? fmt::format("{} ({})", text, rule.reason) : text);
  }
}

// What a rule says of tensors of two files, and not of a case.
// Errors: kUsage. is_computed: expected values are computed, not those in GOLD.
void CheckFitsACase(const TensorRule& rule, bool is_computed) {
  const std::string where = rule.where.empty() ? "compare" : rule.where;
  if (std::holds_alternative<CodecRule>(rule.tolerance)) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("'{}' is for a GOLD without kvcheck's schema; a case has its formats in "
                    "its text: write derived, or leave the rule out",
                    Print(rule.tolerance)),
        where);
  }
  if (rule.cast) {
    throw Error(ErrorCode::kUsage,
                "cast is for a GOLD without kvcheck's schema; the types of outputs are the case's "
                "(out=bf16): store them in these",
                where);
  }
  if (rule.nan && is_computed) {
    throw Error(
        ErrorCode::kUsage,
        "nan is for GOLD's stored values; where a value is NaN by definition the case says: "
        "leave nan out, or judge stored values by --tol or a rule of --rules",
        where);
  }
}

Verdict CompareOne(const CompareQuestion& asked, const RuleSet& rules, const StoredFile& gold,
                   const StoredFile& got, const CompareItem& item) {
  if (!item.c) return WithoutJudging(Outcome::kIllegalCase, item.problem);
  if (!item.answer) {
    return WithoutJudging(
        Outcome::kFail,
        fmt::format("missing: {} has no output of this case{} (looked for "
                    "/cases/{}/observed/*/OUTPUT, /{}/OUTPUT and /{})",
                    got.path(),
                    asked.implementation.empty() ? "" : " by '" + asked.implementation + "'",
                    item.outline->name, item.outline->name, item.outline->name));
  }
  // A trace has no tensors that a rule could be about.
  if (OutputSpecs(*item.c).empty()) {
    StoredAnswer said = *item.answer;
    if (!asked.plan.empty()) said.plan = asked.plan;
    if (!asked.profile.empty()) said.profile = asked.profile;
    return JudgeStoredAnswer(gold, *item.outline, *item.c, got, said, asked.judge, asked.cancel);
  }
  const TensorRule& rule = rules.Of(item.outline->name);
  const bool is_derived = std::holds_alternative<DerivedRule>(rule.tolerance);
  const bool has_inputs = HasInputs(*item.outline, *item.c);
  CheckFitsACase(rule, has_inputs && (rule.where.empty() || is_derived));
  if (is_derived && !has_inputs) {
    throw Error(ErrorCode::kMissingData, "no bound can be derived: the golden case has no inputs",
                rule.where);
  }
  if ((!rule.where.empty() && !is_derived) || !has_inputs) {
    if (item.outline->expected.empty()) {
      throw Error(ErrorCode::kMissingData,
                  "the golden case has neither inputs nor expected values");
    }
    Verdict verdict = JudgeStored(asked, rule, gold, *item.outline, *item.c, got, *item.answer);
    if (has_inputs && !rule.where.empty())
      AddLooserWarning(asked, rule, QuestionOf(asked, gold, item), &verdict);
    return verdict;
  }
  const Question question = QuestionOf(asked, gold, item);
  const FileObserved observed(got, item.answer->outputs, *item.c);
  return EvaluateCase(question, observed, asked.judge, asked.cancel);
}

// A case that GOT has and GOLD has not is as wrong as one that is missing.
void AddExtraCases(const CaseSelection& selection, const StoredFile& gold, const StoredFile& got,
                   ResultSink* results) {
  if (!got.IsGolden()) return;
  std::set<std::string> known;
  for (const std::string& name : gold.golden().CaseNames()) known.insert(name);
  for (const GoldenCase& extra : got.golden().outline().cases) {
    if (known.contains(extra.name) || !selection.Selects(extra.name)) continue;
    if (selection.MayBeExtra(extra.name)) continue;
    CaseResult result;
    result.name = extra.name;
    result.verdict = WithoutJudging(Outcome::kFail,
                                    fmt::format("extra: {} does not have this case", gold.path()));
    result.verdict.case_text = extra.case_text;
    results->Add(result);
  }
}

// Datasets of a GOT without the schema that answer no case of GOLD, selected or not.
std::set<std::string> AnswersToNothing(const StoredFile& gold, const StoredFile& got) {
  std::set<std::string> paths;
  if (got.IsGolden()) return paths;
  const FileIndex& index = got.source().index();
  for (const auto& [path, record] : index.objects) {
    if (record.is_dataset) paths.insert(path);
  }
  for (const GoldenCase& outline : gold.golden().outline().cases) {
    try {
      for (const StoredAnswer& answer :
           FindAnswers(index, outline.name, ParseCase(outline.case_text))) {
        for (const auto& [name, path] : answer.outputs) paths.erase(path);
      }
    } catch (const Error&) {
      // A case that does not parse is reported where it is compared.
      continue;
    }
  }
  return paths;
}

}  // namespace

void CompareGolden(const CompareQuestion& asked, const StoredFile& gold, const StoredFile& got,
                   ResultSink* results) {
  const CaseSelection selection(asked, gold, got);
  const std::vector<CompareItem> items = Items(asked, selection, gold, got);
  const RuleSet rules = RulesOf(asked);
  rules.CheckUsed(gold.golden().CaseNames());
  results->Begin(static_cast<int64_t>(items.size()));
  std::vector<PlannedCase> cases;
  cases.reserve(items.size());
  for (const CompareItem& item : items) {
    PlannedCase planned;
    CaseResult& result = planned.result;
    result.name = item.Name();
    result.verdict.case_text = item.outline->case_text;
    result.verdict.command = fmt::format("kvcheck compare {} {} --only {}", ShellWord(gold.path()),
                                         ShellWord(got.path()), ShellWord(item.outline->name));
    if (item.answer) {
      result.verdict.implementation = ImplementationText(*item.answer);
      if (!item.answer->impl.empty()) {
        result.verdict.command += " --impl " + ShellWord(item.answer->impl);
      }
    }
    result.verdict.command += PlanArguments(asked);
    planned.is_large = item.c && IsLarge(*item.c);
    planned.evaluate = [&](int threads) {
      CompareQuestion one = asked;
      one.judge.threads = threads;
      return CompareOne(one, rules, gold, got, item);
    };
    cases.push_back(std::move(planned));
  }
  if (!results->JudgeAll(std::move(cases), asked.judge.threads)) return;
  AddExtraCases(selection, gold, got, results);
  const std::set<std::string> unasked = AnswersToNothing(gold, got);
  if (!unasked.empty()) results->AddNote(NotLookedAt(got.path(), unasked));
}

}  // namespace kvcheck
