// kvcheck compare: stored tensors against a golden file, against another file by path, or (--case)
// against the inputs in the same file. This file has the options alone.

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "reference/spec/error.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/compare_options.h"

namespace kvcheck {
namespace {

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
  return gold.IsGolden() ? CompareGolden(options, gold, got) : CompareStored(options, gold, got);
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
