// kvcheck golden make: writes a golden file with expected values, computed at double-double from
// the inputs of another file, of a prompt cache of mlx-lm or of a generated case; a sample of rows
// is computed again with 50 digits.

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "golden/prompt_cache_file.h"
#include "golden/schema.h"
#include "golden/writer.h"
#include "reference/spec/error.h"
#include "tools/compare/case_tensors.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/stored_expected.h"
#include "tools/corridor/stored_tensors.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"
#include "tools/report/shown_text.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

struct MakeOptions {
  CommonOptions common;
  std::string file;
  std::string output;
  std::string case_text;
  std::string name = "case";
  std::string profile;
  int64_t sample_rows = 8;
};

std::string CommandText(const MakeOptions& options) {
  std::string text = "kvcheck golden make";
  if (!options.file.empty()) text += " " + ShellWord(options.file);
  text += " -o " + ShellWord(options.output);
  if (!options.case_text.empty()) {
    text +=
        fmt::format(" --case {} --name {}", ShellWord(options.case_text), ShellWord(options.name));
  }
  if (!options.profile.empty()) text += " --profile " + ShellWord(options.profile);
  return text;
}

Profile ProfileOf(const MakeOptions& options, const GoldenCase& c) {
  return options.profile.empty() ? ValueProfile(c) : ParseProfile(options.profile);
}

// Fills in the expected values and verifies them; false when interrupted. Only what passes is
// written.
bool MakeCase(const MakeOptions& options, GoldenCase golden_case, const Profile& profile,
              GoldenWriter* writer, RunReport* report) {
  CaseResult result;
  result.name = golden_case.name;
  result.verdict.case_text = golden_case.case_text;
  result.verdict.implementation = "expected values, made at double-double";
  result.verdict.command = CommandText(options);
  return report->Judge(std::move(result), [&] {
    const Question question =
        ValueQuestion(ParseCase(golden_case.case_text), golden_case.inputs, profile);
    const std::unique_ptr<ExpectedSource> source = MakeExpected(question);
    golden_case.expected =
        ComputeExpected(CancellableSource(*source, OnInterrupt()), options.common.threads);
    Verdict verdict =
        VerifyExpected(*source, golden_case.expected, SampleRows(question.c, options.sample_rows),
                       options.common.Judge(), OnInterrupt());
    verdict.case_text = golden_case.case_text;
    verdict.profile = Print(profile);
    if (verdict.outcome != Outcome::kFail) writer->AddCase(golden_case);
    return verdict;
  });
}

// The case of --case, with inputs generated or from a file without the schema, which is read as
// compare --case reads it.
GoldenCase CaseOfOptions(const MakeOptions& options, const StoredFile* file, const Profile& profile,
                         RunReport* report) {
  const Case c = ParseCase(options.case_text);
  GoldenCase golden_case;
  golden_case.name = options.name;
  golden_case.case_text = Print(c);
  if (file == nullptr) {
    golden_case.inputs = GenerateCaseInputs(c, profile);
    return golden_case;
  }
  CaseTensors tensors(c, {});
  golden_case.inputs = tensors.Inputs(*file);
  for (std::string& note : tensors.Notes()) report->AddNote(std::move(note));
  return golden_case;
}

// What a decoder asks of each layer of a prompt cache: one query a head, drawn, over all its keys.
std::vector<GoldenCase> CasesOfPromptCache(const PromptCache& cache, const Profile& profile) {
  std::vector<GoldenCase> cases;
  for (size_t i = 0; i < cache.layers.size(); ++i) {
    const PromptCacheLayer& layer = cache.layers[i];
    const std::string x(ShortName(RowDType(layer.k)));
    const auto text = [&](const std::string& k, const std::string& v, const std::string& data) {
      return fmt::format(
          "attention b={} hq={} hkv={} l=1 t={} d={} dv={} q={} k={} v={} out={} data={}",
          layer.batch, layer.kv_heads, layer.kv_heads, layer.tokens, layer.k_dim, layer.v_dim, x, k,
          v, x, data);
    };
    GoldenCase golden_case;
    // Names are written in order.
    golden_case.name = fmt::format("layer{:05}", i);
    golden_case.case_text = Print(ParseCase(text(Print(layer.k), Print(layer.v), "file")));
    golden_case.inputs = layer.tensors;
    golden_case.inputs["q"] =
        GenerateCaseInputs(ParseCase(text(x, x, fmt::format("gauss:{}", i))), profile).at("q");
    if (!IsPlain(layer.k)) {
      golden_case.kv_formats = {{"k_codes", Print(layer.k)}, {"v_codes", Print(layer.v)}};
    }
    cases.push_back(std::move(golden_case));
  }
  return cases;
}

// Refuses an output that would replace what nobody could make again. Golden files are made from
// their inputs; an empty file holds nothing.
void CheckOutput(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    // The rename at the end would put a file in the place of a device.
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is no regular file, and would be replaced: name another", path),
                "-o");
  }
  if (std::filesystem::file_size(path, ignored) == 0) return;
  bool is_golden = false;
  try {
    is_golden = StoredFile(path).IsGolden();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
    // No file of tensors at all, or a damaged one.
  }
  if (!is_golden) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is no golden file, and would be replaced: name another file, or "
                            "remove it first",
                            path),
                "-o");
  }
}

int Make(const MakeOptions& options) {
  options.common.Check({options.file});
  if (options.file.empty() && options.case_text.empty()) {
    throw Error(ErrorCode::kUsage, "give a FILE with inputs, or --case with generated data",
                "golden make");
  }
  std::unique_ptr<StoredFile> file;
  if (!options.file.empty()) file = std::make_unique<StoredFile>(options.file);
  const bool is_golden = file != nullptr && file->IsGolden();
  std::optional<PromptCache> prompt;
  if (file != nullptr && !is_golden && options.case_text.empty() &&
      IsPromptCache(file->source().index())) {
    prompt = ReadPromptCache(&file->source());
  }
  if (!prompt && is_golden != options.case_text.empty()) {
    throw Error(ErrorCode::kUsage,
                is_golden ? "a golden file names its own cases: leave out --case"
                          : "a file without the schema that is no prompt cache needs --case",
                options.file);
  }
  // A golden file may be made again in place: what was observed is kept. Of any other file only the
  // inputs are taken, and the rest would be lost.
  std::error_code ignored;
  if (file != nullptr && !is_golden &&
      std::filesystem::equivalent(options.file, options.output, ignored)) {
    throw Error(ErrorCode::kUsage, "-o would replace FILE; give another name", options.file);
  }
  CheckOutput(options.output);
  GoldenWriter writer(options.output, ToolVersion() + " reference, double-double",
                      CommandText(options));
  const Profile stated = ParseProfile(options.profile);
  std::vector<GoldenCase> of_prompt;
  if (prompt) of_prompt = CasesOfPromptCache(*prompt, stated);
  const int64_t total = is_golden ? static_cast<int64_t>(file->golden().outline().cases.size())
                        : prompt  ? static_cast<int64_t>(of_prompt.size())
                                  : 1;
  RunReport report("golden make", options.common, total);
  report.WatchInterrupts();
  bool complete = true;
  if (is_golden) {
    for (const GoldenCase& outline : file->golden().outline().cases) {
      // Observed outputs are kept, so the case is read whole.
      GoldenCase golden_case = outline;
      for (const auto& [dataset, tensor] : MutableTensorsOf(golden_case)) {
        *tensor = ReadTensor(file->source(), dataset);
      }
      const Profile profile = ProfileOf(options, golden_case);
      if (golden_case.inputs.empty()) {
        golden_case.inputs = GenerateCaseInputs(ParseCase(golden_case.case_text), profile);
      }
      complete = MakeCase(options, std::move(golden_case), profile, &writer, &report);
      if (!complete) break;
    }
  } else if (prompt) {
    for (GoldenCase& golden_case : of_prompt) {
      complete = MakeCase(options, std::move(golden_case), stated, &writer, &report);
      if (!complete) break;
    }
  } else {
    complete = MakeCase(options, CaseOfOptions(options, file.get(), stated, &report), stated,
                        &writer, &report);
  }
  const int exit_code = report.Finish();
  // A file with cases left out would look like a whole one.
  if (exit_code != 0 || !complete) return exit_code;
  const std::string hash = writer.Finish();
  if (options.common.json != "-" && options.common.junit != "-") {
    std::cout << fmt::format("wrote {} ({})\n", NameText(options.output), hash) << std::flush;
  }
  return exit_code;
}

}  // namespace

void AddGoldenMakeCommand(CLI::App* golden, ChosenCommand* chosen) {
  auto options = std::make_shared<MakeOptions>();
  CLI::App* command = golden->add_subcommand(
      "make", "Write a golden file with expected values computed from the inputs of FILE");
  command->footer(
      "FILE is a golden file, whose observed outputs are kept; a prompt cache that mlx-lm has "
      "saved, "
      "of\nwhich each layer becomes a case with a drawn query; or with --case any file with the "
      "inputs by\nname. Without FILE, --case generates its data. Nothing is written unless every "
      "case agrees with\nits re-check.");
  command->add_option("FILE", options->file, "File with inputs");
  command->add_option("-o,--output", options->output, "The golden file to write")
      ->required()
      ->type_name("OUT");
  command->add_option("--case", options->case_text, "The case, where FILE has no schema");
  command->add_option("--name", options->name, "Its name in OUT")->capture_default_str();
  command->add_option("--profile", options->profile,
                      "Conventions that decide values (default: of the first observed output)");
  AddSampleOption(command, &options->sample_rows);
  AddCommonOptions(command, &options->common);
  command->callback([=] { *chosen = [=] { return Make(*options); }; });
}

}  // namespace kvcheck
