// kvcheck golden verify: everything that a golden file claims, computed again. Stored expected
// values against the reference; every observed output under its own plan and profile, with the
// outcome that the file expects of it.

#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "golden/schema.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/recorded_trace.h"
#include "tools/corridor/stored_expected.h"
#include "tools/corridor/stored_tensors.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

struct VerifyOptions {
  CommonOptions common;
  std::vector<std::string> files;
  std::string only;
  int64_t sample_rows = 8;
};

Expectation ExpectationOf(const ObservedRecord& record) {
  if (record.expect == "MISTRUSTED") return Expectation::kMistrusted;
  return record.expect == "FAIL" ? Expectation::kFinding : Expectation::kPass;
}

std::map<std::string, ExpectedTensor> LoadExpected(const StoredFile& file,
                                                   const GoldenCase& outline) {
  std::map<std::string, ExpectedTensor> expected;
  const std::string group = CasePath(outline.name) + "/";
  for (const auto& [name, tensor] : outline.expected) {
    expected[name].hi = ReadTensor(file.source(), group + ExpectedDataset(name, false));
    if (tensor.lo) {
      expected[name].lo = ReadTensor(file.source(), group + ExpectedDataset(name, true));
    }
  }
  return expected;
}

Verdict VerifyStored(const VerifyOptions& options, const StoredFile& file,
                     const GoldenCase& outline, const Case& c, const JudgeOptions& judge) {
  const Profile profile = ValueProfile(outline);
  const Question question = ValueQuestion(c, GoldenInputs(file, outline, c, profile), profile);
  const std::unique_ptr<ExpectedSource> source = MakeExpected(question);
  Verdict verdict = VerifyExpected(*source, LoadExpected(file, outline),
                                   SampleRows(c, options.sample_rows), judge, OnInterrupt());
  verdict.case_text = Print(c);
  verdict.profile = Print(profile);
  return verdict;
}

Verdict VerifyObserved(const StoredFile& file, const GoldenCase& outline,
                       const ObservedRecord& record, const Case& c, const JudgeOptions& judge) {
  StoredAnswer answer;
  answer.plan = record.plan;
  answer.profile = record.profile;
  for (const auto& [name, tensor] : record.outputs) {
    answer.outputs[name] = CasePath(outline.name) + "/observed/" + record.impl + "/" + name;
  }
  // What a trace left is found by its operations.
  if (OutputSpecs(c).empty()) {
    for (StoredAnswer& found : FindAnswers(file.source().index(), outline.name, c)) {
      if (found.impl == record.impl) answer = std::move(found);
    }
  }
  return JudgeStoredAnswer(file, outline, c, file, answer, judge, OnInterrupt());
}

void AddCase(const VerifyOptions& options, const StoredFile& file, const GoldenCase& outline,
             std::vector<PlannedCase>* cases) {
  PlannedCase planned;
  planned.result.verdict.case_text = outline.case_text;
  planned.result.verdict.command = fmt::format("kvcheck golden verify {} --only {}",
                                               ShellWord(file.path()), ShellWord(outline.name));
  if (outline.expected.empty() && outline.observed.empty()) {
    planned.result.name = outline.name;
    planned.evaluate = [](int) {
      return WithoutJudging(Outcome::kMistrusted,
                            "the case has neither expected nor observed values: nothing to verify");
    };
    return cases->push_back(std::move(planned));
  }
  try {
    planned.is_large = IsLarge(ParseCase(outline.case_text));
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
    // What is wrong with the text is said where it is judged.
  }
  const auto judge_by = [&options](int threads) {
    JudgeOptions judge = options.common.Judge();
    judge.threads = threads;
    return judge;
  };
  if (!outline.expected.empty()) {
    PlannedCase expected = planned;
    expected.result.name = outline.name + "/expected";
    expected.result.verdict.implementation = "stored expected values";
    expected.evaluate = [&options, &file, &outline, judge_by](int threads) {
      return VerifyStored(options, file, outline, ParseCase(outline.case_text), judge_by(threads));
    };
    cases->push_back(std::move(expected));
  }
  for (const ObservedRecord& record : outline.observed) {
    PlannedCase observed = planned;
    observed.result.name = outline.name + "/" + record.impl;
    observed.result.expectation = ExpectationOf(record);
    observed.result.finding = record.reason;
    observed.result.verdict.implementation = record.implementation + " " + record.version;
    observed.result.verdict.command =
        fmt::format("kvcheck run --data {}",
                    ShellWord(fmt::format("{}#{}/{}", file.path(), outline.name, record.impl)));
    observed.evaluate = [&file, &outline, &record, judge_by](int threads) {
      return VerifyObserved(file, outline, record, ParseCase(outline.case_text), judge_by(threads));
    };
    cases->push_back(std::move(observed));
  }
}

int Verify(const VerifyOptions& options) {
  options.common.Check(options.files);
  std::vector<std::unique_ptr<StoredFile>> files;
  std::vector<PlannedCase> cases;
  for (const std::string& path : options.files) {
    files.push_back(std::make_unique<StoredFile>(path));
    for (const GoldenCase& outline : files.back()->golden().outline().cases) {
      if (!options.only.empty() && !MatchesGlob(options.only, outline.name)) continue;
      AddCase(options, *files.back(), outline, &cases);
    }
  }
  RunReport report("golden verify", options.common, std::ssize(cases));
  report.WatchInterrupts();
  report.JudgeAll(std::move(cases), options.common.threads);
  return report.Finish();
}

}  // namespace

void AddGoldenVerifyCommand(CLI::App* golden, ChosenCommand* chosen) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = golden->add_subcommand(
      "verify", "Recompute expected values and judge everything observed in golden files");
  command->add_option("FILE", options->files, "Golden files")->required();
  command->add_option("--only", options->only, "Only cases that match this pattern");
  AddSampleOption(command, &options->sample_rows);
  AddCommonOptions(command, &options->common);
  command->callback([=] { *chosen = [=] { return Verify(*options); }; });
}

}  // namespace kvcheck
