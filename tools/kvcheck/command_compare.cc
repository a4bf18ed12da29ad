// kvcheck compare: stored tensors against a golden file, against another file by path, or (--case)
// against the inputs in the same file.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>

#include "golden/schema.h"
#include "reference/formats/codec.h"
#include "reference/judge/tensor_source.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/evaluate_case.h"
#include "tools/kvcheck/run_report.h"
#include "tools/kvcheck/stored_tensors.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

struct CompareOptions {
  CommonOptions common;
  std::vector<std::string> files;
  std::string case_text;
  std::string plan;
  std::string profile;
  std::string implementation;
  std::string only;
  std::string tolerance;
  std::vector<std::string> map;
};

bool Matches(const std::string& pattern, const std::string& name) {
  return pattern.empty() || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

Plan PlanOf(const CompareOptions& options, const std::string& stated) {
  if (!options.plan.empty()) return ParsePlan(options.plan);
  return ParsePlan(stated.empty() ? kStrangerPlan : stated);
}

Profile ProfileOf(const CompareOptions& options, const std::string& stated) {
  return ParseProfile(options.profile.empty() ? stated : options.profile);
}

std::string PlanArguments(const CompareOptions& options) {
  std::string text;
  const std::pair<const char*, const std::string&> arguments[] = {
      {"--plan", options.plan}, {"--profile", options.profile}, {"--tol", options.tolerance}};
  for (const auto& [name, value] : arguments) {
    if (!value.empty()) text += fmt::format(" {} {}", name, ShellWord(value));
  }
  if (!options.common.statistics) text += " --statistics off";
  return text;
}

DatasetNames ParseMap(const std::vector<std::string>& entries) {
  DatasetNames map;
  for (const std::string& entry : entries) {
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

TensorMap LoadTensors(const StoredFile& file, const DatasetNames& datasets) {
  TensorMap tensors;
  for (const auto& [name, dataset] : datasets) tensors[name] = ReadTensor(file.source(), dataset);
  return tensors;
}

// Judges against the expected values in GOLD under --tol.
Verdict JudgeStored(const CompareOptions& options, const StoredFile& gold,
                    const GoldenCase& outline, const Case& c, const StoredFile& got,
                    const StoredAnswer& answer) {
  const ToleranceRule rule = options.tolerance.empty()
                                 ? ToleranceRule(ExactRule{})
                                 : ParseToleranceRule(WholeLine(options.tolerance));
  std::map<std::string, RuledTensor> expected;
  const std::map<std::string, TensorSpec> specs = OutputSpecs(c);
  for (const auto& [name, tensor] : outline.expected) {
    const auto spec = specs.find(name);
    if (spec == specs.end()) continue;
    ExpectedTensor stored;
    const std::string group = CasePath(outline.name) + "/";
    stored.hi = ReadTensor(gold.source(), group + ExpectedDataset(name, false));
    if (tensor.lo) stored.lo = ReadTensor(gold.source(), group + ExpectedDataset(name, true));
    expected[name] = {InDeclaredType(stored, spec->second), rule};
  }
  for (const auto& [name, spec] : specs) {
    if (expected.contains(name)) continue;
    throw Error(ErrorCode::kMissingData,
                fmt::format("the case asks for '{}', of which no expected values are stored", name),
                gold.path());
  }
  const FileObserved observed(got, answer.outputs, c);
  JudgeOptions judge = options.common.Judge(0);
  judge.special = kTensorPolicy;
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

std::vector<CompareItem> Items(const CompareOptions& options, const StoredFile& gold,
                               const StoredFile& got) {
  std::vector<CompareItem> items;
  for (const GoldenCase& outline : gold.golden().outline().cases) {
    if (!Matches(options.only, outline.name)) continue;
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
      if (!Matches(options.implementation, answer.impl)) continue;
      items.push_back({&outline, item.c, "", std::move(answer)});
    }
    if (items.size() == before) items.push_back(std::move(item));
  }
  return items;
}

Verdict CompareOne(const CompareOptions& options, const StoredFile& gold, const StoredFile& got,
                   const CompareItem& item, int64_t tests) {
  if (!item.c) return WithoutJudging(Outcome::kIllegalCase, item.problem);
  if (!item.answer) {
    return WithoutJudging(
        Outcome::kFail,
        fmt::format("missing: {} has no output of this case{} (looked for "
                    "/cases/{}/observed/*/OUTPUT, /{}/OUTPUT and /{})",
                    got.path(),
                    options.implementation.empty() ? "" : " by '" + options.implementation + "'",
                    item.outline->name, item.outline->name, item.outline->name));
  }
  if (!options.tolerance.empty() || !HasInputs(*item.outline, *item.c)) {
    if (item.outline->expected.empty()) {
      throw Error(ErrorCode::kMissingData,
                  "the golden case has neither inputs nor expected values");
    }
    return JudgeStored(options, gold, *item.outline, *item.c, got, *item.answer);
  }
  Question question;
  question.c = *item.c;
  question.plan = PlanOf(options, item.answer->plan);
  question.profile = ProfileOf(options, item.answer->profile);
  question.inputs = GoldenInputs(gold, *item.outline, *item.c, question.profile);
  const FileObserved observed(got, item.answer->outputs, *item.c);
  return EvaluateCase(question, observed, options.common.Judge(tests));
}

// A case that GOT has and GOLD has not is as wrong as one that is missing.
void AddExtraCases(const CompareOptions& options, const StoredFile& gold, const StoredFile& got,
                   RunReport* report) {
  if (!got.IsGolden()) return;
  std::set<std::string> known;
  for (const std::string& name : gold.golden().CaseNames()) known.insert(name);
  for (const GoldenCase& extra : got.golden().outline().cases) {
    if (known.contains(extra.name) || !Matches(options.only, extra.name)) continue;
    CaseResult result;
    result.name = extra.name;
    result.verdict = WithoutJudging(Outcome::kFail,
                                    fmt::format("extra: {} does not have this case", gold.path()));
    result.verdict.case_text = extra.case_text;
    report->Add(std::move(result));
  }
}

int CompareGolden(const CompareOptions& options, const StoredFile& gold, const StoredFile& got) {
  const std::vector<CompareItem> items = Items(options, gold, got);
  int64_t tests = 0;
  for (const CompareItem& item : items) {
    if (item.c && item.answer) tests += CountStatistics(*item.c);
  }
  RunReport report("compare", options.common, static_cast<int64_t>(items.size()));
  for (const CompareItem& item : items) {
    CaseResult result;
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
    result.verdict.command += PlanArguments(options);
    if (!report.Judge(std::move(result),
                      [&] { return CompareOne(options, gold, got, item, tests); })) {
      return report.Finish();
    }
  }
  AddExtraCases(options, gold, got, &report);
  return report.Finish();
}

// Files without the schema: every dataset of GOLD against the one of the same path.
int CompareByPath(const CompareOptions& options, const StoredFile& gold, const StoredFile& got) {
  const ToleranceRule rule = options.tolerance.empty()
                                 ? ToleranceRule(ExactRule{})
                                 : ParseToleranceRule(WholeLine(options.tolerance));
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

// One file that holds inputs and outputs of --case.
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

int Compare(const CompareOptions& options) {
  options.common.Check();
  if (!options.case_text.empty()) {
    const std::pair<const char*, const std::string&> foreign[] = {
        {"--only", options.only}, {"--impl", options.implementation}, {"--tol", options.tolerance}};
    for (const auto& [name, value] : foreign) {
      if (!value.empty()) {
        throw Error(ErrorCode::kUsage, fmt::format("{} does not go with --case", name), "compare");
      }
    }
    if (options.files.size() != 1) {
      throw Error(ErrorCode::kUsage, "--case takes one file, with the inputs and the outputs",
                  "compare");
    }
    return CompareCase(options);
  }
  if (options.files.size() != 2) {
    throw Error(ErrorCode::kUsage, "give GOLD and GOT, or --case and one file", "compare");
  }
  if (!options.map.empty()) {
    throw Error(ErrorCode::kUsage, "--map goes with --case", "compare");
  }
  const StoredFile gold(options.files[0]);
  const StoredFile got(options.files[1]);
  return gold.IsGolden() ? CompareGolden(options, gold, got) : CompareByPath(options, gold, got);
}

}  // namespace

void AddCompareCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app->add_subcommand(
      "compare", "Judge stored tensors: GOLD GOT, or --case 'CASE' FILE without a golden file");
  command->footer(
      "In GOT a case's output is /cases/NAME/observed/*/OUTPUT, /NAME/OUTPUT or /NAME. Expected\n"
      "values are computed from GOLD's inputs under the plan and profile stored beside the "
      "output.\n"
      "Without inputs, or with --tol, GOLD's stored expected values are used. Files without the\n"
      "schema are compared dataset by dataset; one that cannot be read is MISTRUSTED.\n"
      "With --case, datasets are found by name (q, k, v, out, ...) or --map; data=REGIME:SEED "
      "generates\nthe inputs, so that FILE needs outputs alone.");
  command->add_option("FILES", options->files, "GOLD GOT; with --case one FILE")
      ->required()
      ->expected(1, 2);
  command->add_option("--case", options->case_text, "The case that FILE answers");
  command->add_option("--plan", options->plan,
                      "How the implementation computes (default: as stored, else base=stranger)");
  command->add_option("--profile", options->profile,
                      "Which conventions it follows (default: as stored)");
  command->add_option("--impl", options->implementation,
                      "Only observed outputs of the implementations that match this pattern");
  command->add_option("--only", options->only, "Only cases (or datasets) that match this pattern");
  command->add_option("--tol", options->tolerance,
                      "Rule against stored values: exact, ulp:N, abs:X, rel:Y, abs:X,rel:Y");
  command->add_option("--map", options->map, "NAME=/path of a dataset, with --case; repeatable")
      ->delimiter(',');
  AddCommonOptions(command, &options->common);
  command->callback([=] { *chosen = [=] { return Compare(*options); }; });
}

}  // namespace kvcheck
