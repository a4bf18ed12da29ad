// kvcheck compare: stored tensors against a golden file, against another file by path, or (--case)
// against the inputs in the same file. This file has the options alone.

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <system_error>
#include <utility>

#include "golden/raw_file.h"
#include "reference/spec/error.h"
#include "tools/compare/compare_question.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

struct CompareOptions {
  CommonOptions common;
  CompareQuestion question;
  bool bisect = false;  // tool_main.cc maps the exit code
};

// nullptr of a folder of shards, which is read and not mapped.
std::unique_ptr<MappedFile> BytesOf(const std::string& path) {
  const std::string file = ParseTensorPlace(path).path;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) return nullptr;
  return std::make_unique<MappedFile>(file);
}

// An option and whether it was given.
using Given = std::pair<const char*, bool>;

void Refuse(std::initializer_list<Given> options, const std::string& reason) {
  for (const auto& [name, given] : options) {
    if (given) throw Error(ErrorCode::kUsage, fmt::format("{} {}", name, reason), "compare");
  }
}

// Options that are about tensors of two files.
void RefuseWithCase(const CompareQuestion& options, const std::string& with) {
  const std::string reason = "does not go with " + with;
  Refuse({{"--rules", !options.rules.empty()},
          {"--map-file", !options.map_file.empty()},
          {"--allow-missing", !options.allow_missing.empty()},
          {"--allow-extra", !options.allow_extra.empty()},
          {"--slice", !options.slice.empty()},
          {"--nan", !options.nan.empty()},
          {"--stats full", options.full_statistics},
          {"--bless", !options.bless.empty()},
          {"--impl", !options.implementation.empty()}},
         reason);
  if (!options.tolerance.empty() && options.tolerance != "derived") {
    throw Error(ErrorCode::kUsage,
                fmt::format("with {} the bound is derived; --tol can only say so", with),
                "compare");
  }
}

int Report(const CommonOptions& common, const std::function<void(ResultSink*)>& compare) {
  RunReport report("compare", common);
  report.WatchInterrupts();
  compare(&report);
  return report.Finish();
}

// As of other runs of many cases.
CommonOptions FailuresFirst(CommonOptions common) {
  common.text.failures_first = true;
  return common;
}

int Compare(const CommonOptions& common, const CompareQuestion& options) {
  std::vector<std::string> inputs;
  for (const std::string& place : options.files) inputs.push_back(ParseTensorPlace(place).path);
  inputs.insert(inputs.end(), options.rules.begin(), options.rules.end());
  inputs.insert(inputs.end(), options.map_file.begin(), options.map_file.end());
  if (!options.cases.empty()) inputs.push_back(options.cases);
  common.Check(inputs);
  if (options.bitwise && options.gold_plan.empty()) {
    throw Error(ErrorCode::kUsage, "--bitwise goes with --gold-plan", "compare");
  }
  if (!options.cases.empty()) {
    if (!options.files.empty()) {
      throw Error(ErrorCode::kUsage,
                  "--cases names the files of each case in its line: give no others", "compare");
    }
    Refuse({{"--group", !options.groups.empty()}},
           "does not go with --cases: a line says the group of its case");
    Refuse({{"--map", !options.map.empty()}, {"--bitwise", options.bitwise}},
           "does not go with --cases");
    RefuseWithCase(options, "--cases");
    return Report(FailuresFirst(common),
                  [&](ResultSink* results) { CompareCases(options, results); });
  }
  if (!options.case_text.empty()) {
    RefuseWithCase(options, "--case");
    if (options.groups.empty()) {
      Refuse({{"--include", !options.include.empty()}, {"--exclude", !options.exclude.empty()}},
             "does not go with --case, but with --cases or --group");
      Refuse({{"--shard", !options.shard.empty()}},
             "does not go with --case, but with --cases or --group");
    }
    if (!options.gold_plan.empty()) {
      if (options.files.size() != 2) {
        throw Error(ErrorCode::kUsage, "--gold-plan takes GOLD and GOT", "compare");
      }
      Refuse({{"--rows", common.sample_rows > 0}}, "does not go with --gold-plan");
    }
    if (options.files.empty()) {
      throw Error(ErrorCode::kUsage, "--case needs a file: kvcheck compare --case 'CASE' FILE",
                  "compare");
    }
    if (!options.groups.empty()) {
      return Report(FailuresFirst(common),
                    [&](ResultSink* results) { CompareCases(options, results); });
    }
    return Report(common, [&](ResultSink* results) { CompareCase(options, results); });
  }
  Refuse({{"--group", !options.groups.empty()}}, "goes with --case");
  Refuse({{"--axes", !options.axes.empty()}}, "goes with --case");
  Refuse({{"--gold-plan", !options.gold_plan.empty()}}, "goes with --case");
  if (options.files.size() != 2) {
    throw Error(ErrorCode::kUsage, "give GOLD and GOT, or --case and a file, or --cases and a list",
                "compare");
  }
  if (options.bless.empty() != options.reason.empty()) {
    throw Error(ErrorCode::kUsage, "--bless and --reason go together", "compare");
  }
  if (!options.bless.empty()) {
    // The new file would hold only parts, or tensors of another type than was seen.
    Refuse({{"--shard", !options.shard.empty()},
            {"--slice", !options.slice.empty()},
            {"--cast", !options.cast.empty()},
            {"--tol", !options.tolerance.empty()},
            {"--rules", !options.rules.empty()},
            {"--json", !common.json.empty()},
            {"--junit", !common.junit.empty()},
            {"--html", !common.html.empty()}},
           "does not go with --bless, which compares bit by bit and writes whole tensors");
  }
  const std::unique_ptr<MappedFile> gold_bytes = BytesOf(options.files[0]);
  const std::unique_ptr<MappedFile> got_bytes = BytesOf(options.files[1]);
  const StoredFile gold(options.files[0]);
  const StoredFile got(options.files[1]);
  if (gold.IsGolden()) {
    const std::string stored_only = "is for a GOLD without kvcheck's schema; ";
    Refuse(
        {{"--map", !options.map.empty()}, {"--map-file", !options.map_file.empty()}},
        stored_only +
            "GOT's outputs of a case are found as /cases/NAME/observed/*/OUTPUT, /NAME/OUTPUT or "
            "/NAME: store them so, or give the case itself (--case, --map OUTPUT=/path)");
    Refuse({{"--slice", !options.slice.empty()}},
           stored_only + "a case is judged whole: choose cases with --include");
    Refuse({{"--cast", !options.cast.empty()}},
           stored_only + "the types of outputs are the case's (out=bf16): store them in these");
    Refuse({{"--bless", !options.bless.empty()}},
           stored_only + "kvcheck golden make writes a file of cases anew");
    return Report(common, [&](ResultSink* results) { CompareGolden(options, gold, got, results); });
  }
  Refuse({{"--rows", common.sample_rows > 0}},
         "is for cases, whose bounds are computed: stored tensors are compared whole");
  Refuse({{"--plan", !options.plan.empty()},
          {"--profile", !options.profile.empty()},
          {"--impl", !options.implementation.empty()}},
         "is for a golden file as GOLD, or for --case");
  if (!options.bless.empty()) {
    BlessStored(options, gold, got,
                [](const std::string& line) { std::cout << NameText(line) << "\n"; });
    return kExitPassed;
  }
  // Thousands of tensors that agree are not worth a line each.
  CommonOptions quiet = common;
  quiet.text.quiet = !quiet.text.verbose;
  return Report(quiet, [&](ResultSink* results) {
    CompareStored(options, gold, got, gold_bytes.get(), got_bytes.get(), results);
  });
}

CLI::Option* AddList(CLI::App* command, const char* name, std::vector<std::string>* values,
                     const char* type, const char* text) {
  return command->add_option(name, *values, text)->type_name(type)->allow_extra_args(false);
}

void AddSelectionOptions(CLI::App* command, CompareQuestion* options) {
  const std::string group = "Which tensors";
  AddList(command, "--include,--only", &options->include, "GLOB",
          "Only tensors (or cases) that match; * crosses / and .; repeatable")
      ->group(group);
  AddList(command, "--exclude", &options->exclude, "GLOB", "None of these; repeatable")
      ->group(group);
  AddList(command, "--map", &options->map, "RENAME",
          "GOT's names as GOLD has them: 's#REGEX#TEXT#', in order, flags g and i; with --case "
          "NAME=/path of a dataset; repeatable")
      ->group(group);
  AddList(command, "--axes", &options->axes, "AXES",
          "With --case, the order of the axes as stored: B,T,H,D, or T,H*D of one that has two; "
          "NAME=AXES of one tensor; repeatable")
      ->group(group);
  AddList(command, "--map-file", &options->map_file, "FILE",
          "Lines GOT_NAME GOLD_NAME or s#REGEX#TEXT#; repeatable")
      ->group(group);
  AddList(command, "--allow-missing", &options->allow_missing, "GLOB",
          "Tensors that GOT may lack; otherwise a missing tensor fails")
      ->group(group);
  AddList(command, "--allow-extra", &options->allow_extra, "GLOB",
          "Tensors that GOLD may lack; otherwise an extra tensor fails")
      ->group(group);
  command
      ->add_option("--shard", options->shard, "Part i of n of the tensors, by a hash of the name")
      ->type_name("i/n")
      ->group(group);
  command
      ->add_option("--slice", options->slice,
                   "Only this part of each tensor: b=0,h=3,t=0:512, axes by label or number")
      ->type_name("PART")
      ->group(group);
}

void AddRuleOptions(CLI::App* command, CompareQuestion* options) {
  const std::string group = "By which rule";
  command
      ->add_option("--tol", options->tolerance,
                   "Rule of every tensor: exact (the default), ulp:N, abs:X,rel:Y, codec:FORMAT, "
                   "derived; against a golden file, judges its stored values")
      ->type_name("RULE")
      ->group(group);
  AddList(command, "--rules", &options->rules, "FILE",
          "Lines GLOB RULE [nan=...] [cast=TYPE] [reason=\"...\"]; the last that matches decides")
      ->group(group);
  command
      ->add_option("--nan", options->nan,
                   "When two NaN agree: fail, equal, equal-bits (default: fail; equal-bits under "
                   "exact)")
      ->type_name("POLICY")
      ->check(CLI::IsMember({"fail", "equal", "equal-bits"}))
      ->group(group);
  command
      ->add_option(
          "--cast", options->cast,
          "Compare tensors of two types in TYPE, which must hold both exactly; with --case, "
          "tensors stored in other types, whose values must be those of the case's")
      ->type_name("TYPE")
      ->group(group);
  command
      ->add_option_function<std::string>(
          "--stats",
          [options](const std::string& word) { options->full_statistics = word == "full"; },
          "basic (default): every metric of what fails; full: of everything")
      ->check(CLI::IsMember({"basic", "full"}))
      ->type_name("")
      ->group(group);
}

}  // namespace

void AddCompareCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<CompareOptions>();
  CompareQuestion* question = &options->question;
  CLI::App* command = app->add_subcommand(
      "compare",
      "Judge stored tensors: GOLD GOT, or --case 'CASE' FILE without a golden file, or --cases "
      "LIST");
  command->footer(
      "In GOT a case's output is /cases/NAME/observed/*/OUTPUT, /NAME/OUTPUT or /NAME. Expected\n"
      "values are computed from GOLD's inputs under the plan and profile stored beside the "
      "output.\n"
      "Without inputs, or with --tol, GOLD's stored expected values are used. Files without\n"
      "the schema are compared tensor by tensor, bit by bit unless --tol or --rules says "
      "otherwise;\n"
      "a missing or extra tensor fails, one that cannot be read is MISTRUSTED.\n"
      "With --case, datasets are found by name (q or query, k, v, out or attn_output, ...) or "
      "--map,"
      "\nin one file, or the inputs in the first and the outputs in the second; data=REGIME:SEED\n"
      "generates the inputs, so that FILE needs outputs alone. What is stored in a wider type, or "
      "in\n"
      "another order of axes, is taken where that is certain, and said.\n"
      "With --cases, or --case and --group, each case is judged by one thread, large ones by all, "
      "and\na case whose file cannot be read does not stop the others.\n"
      "With --case and --gold-plan, GOT's outputs are held against GOLD's, which has the inputs: "
      "they\n"
      "may differ by the bound of GOLD's plan and that of --plan together. GOLD must keep its "
      "own.");
  command
      ->add_option("FILES", question->files,
                   "GOLD GOT; with --case one FILE, or INPUTS OUTPUTS. HDF5, safetensors, .npy, "
                   ".npz, a folder of shards or of .npy files; raw elements as "
                   "q.bin:bf16:2x8x128x64")
      ->expected(1, 2);
  command->add_option("--case", question->case_text, "The case that FILE answers");
  command
      ->add_option(
          "--cases", question->cases,
          "Many cases in one run: FILE has a JSON object a line, with name, case, plan, "
          "got and, where there are, inputs, or gold and gold_plan, group, map, axes; what "
          "a line leaves out the options say")
      ->type_name("FILE");
  AddList(command, "--group", &question->groups, "GLOB",
          "With --case: each group of FILE that matches is an answer to the case, with its own q, "
          "k, v and out; repeatable");
  command->add_option("--plan", question->plan,
                      "How the implementation computes (default: as stored, else base=stranger)");
  command->add_option("--gold-plan", question->gold_plan,
                      "With --case GOLD GOT: how GOLD's outputs were computed");
  command->add_flag("--bitwise", question->bitwise,
                    "With --gold-plan: both are one deterministic plan, their bytes are equal");
  command->add_option("--profile", question->profile,
                      "Which conventions it follows (default: as stored)");
  command->add_option("--impl", question->implementation,
                      "Only observed outputs of the implementations that match this pattern");
  AddSelectionOptions(command, question);
  AddRuleOptions(command, question);
  command
      ->add_option("--bless", question->bless,
                   "Write GOT's selected tensors, under GOLD's names, "
                   "to a new HDF5 file NEW; needs --reason")
      ->type_name("NEW");
  command->add_option("--reason", question->reason, "Why --bless is right; kept in NEW")
      ->type_name("TEXT");
  command->add_flag("--bisect", options->bisect,
                    "For git bisect run: exit 0 and 1 as they are, 125 (skip) for all others");
  AddCommonOptions(command, &options->common);
  AddRowsOptions(command, &options->common);
  command->callback([=] {
    *chosen = [=] {
      question->judge = options->common.Judge();
      question->cancel = OnInterrupt();
      return Compare(options->common, *question);
    };
  });
}

}  // namespace kvcheck
