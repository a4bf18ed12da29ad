// kvcheck run: one case, on an implementation or on stored tensors. What every failure prints.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>
#include <set>

#include "golden/schema.h"
#include "reference/spec/case_kind.h"
#include "reference/spec/error.h"
#include "tools/corridor/adapters.h"
#include "tools/corridor/case_judges.h"
#include "tools/corridor/cases_file.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/file_trace_store.h"
#include "tools/corridor/judge_history.h"
#include "tools/corridor/judge_trace.h"
#include "tools/corridor/recorded_trace.h"
#include "tools/corridor/registry.h"
#include "tools/corridor/stored_tensors.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/notice.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

struct RunOptions {
  CommonOptions common;
  std::string case_text;
  std::string file;
  std::string plan;
  std::string profile;
  std::string implementation;
  std::string data;
  std::string store = kMemoryStore;
  std::string limit = "10s";
  bool allow_commands = false;
  // What a file of cases says, where neither the command line nor the implementation does.
  std::string file_plan;
  std::string file_profile;

  RemoteLimits Limits() const {
    RemoteLimits limits;
    limits.since_progress = ParseDuration(limit, "--limit");
    limits.on_wait = OnInterrupt();
    if (limits.since_progress.count() < 1) {
      throw Error(ErrorCode::kUsage, "a limit is longer than nothing", "--limit");
    }
    return limits;
  }
};

// The title of a case that names nobody: "attention on optimized 1", for whoever judges a kernel of
// his own must see that it was not asked.
std::string DefaultTitle(const std::string& title, const Case& c, const std::string& name) {
  return fmt::format("{} on {}", title.empty() ? KindName(c) : title,
                     FindAnswerer(KindOf(c), name, OnInterrupt()).Shown());
}

// As a report names it; implementations that would be judged by themselves say so.
template <typename C>  // Capabilities, CacheCapabilities
std::string ObservedName(const C& capabilities, const std::string& name) {
  const ImplementationRow* row = FindImplementation(name);
  if (row != nullptr && !row->checks_itself.empty()) {
    return fmt::format("{} (a check of itself: it cannot find faults of {})", name,
                       row->checks_itself);
  }
  if (!capabilities.foreign) return name;
  const std::string text = capabilities.name + " " + capabilities.version;
  return capabilities.name == name ? text : fmt::format("{} ({})", text, name);
}

// FILE#NAME or FILE#NAME/IMPL.
struct DataPlace {
  std::string file;
  std::string name;
  std::string impl;
};

DataPlace ParsePlace(const std::string& text) {
  const size_t hash = text.rfind('#');
  if (hash == std::string::npos || hash == 0 || hash + 1 == text.size()) {
    throw Error(ErrorCode::kUsage, "--data is FILE#NAME or FILE#NAME/IMPL", text);
  }
  DataPlace place{text.substr(0, hash), text.substr(hash + 1), ""};
  if (const size_t slash = place.name.find('/'); slash != std::string::npos) {
    place.impl = place.name.substr(slash + 1);
    place.name.resize(slash);
  }
  return place;
}

std::string CommandText(const RunOptions& options, const Question& question,
                        const std::string& implementation, const std::string& data) {
  std::string text = "kvcheck run " + ShellWord(Print(question.c));
  if (HasPlan(KindOf(question.c))) {
    text += " --plan " + ShellWord(CommandPlan(question.plan));
  }
  const std::string profile = Print(question.profile);
  if (!profile.empty()) text += " --profile " + ShellWord(profile);
  if (!data.empty()) text += " --data " + ShellWord(data);
  if (!implementation.empty()) text += " --impl " + ShellWord(implementation);
  return text + options.common.JudgeArguments();
}

// The plan: what the command line says, else what the implementation says about itself.
Plan PlanOf(const RunOptions& options, const std::string& stated) {
  if (!options.plan.empty()) return ParsePlan(options.plan);
  return ParsePlan(stated.empty() ? kStrangerPlan : stated);
}

Profile ProfileOf(const RunOptions& options, const std::string& stated) {
  return ParseProfile(options.profile.empty() ? stated : options.profile);
}

// Judges a stored answer again. What a trace is judged by stands in the file.
std::string StoredCommand(const RunOptions& options, const Case& c, const StoredAnswer& answer,
                          const std::string& data) {
  if (OutputSpecs(c).empty()) return "kvcheck run --data " + ShellWord(data);
  Question question;
  question.c = c;
  question.plan = PlanOf(options, answer.plan);
  question.profile = ProfileOf(options, answer.profile);
  return CommandText(options, question, "", data);
}

using InputsOf = std::function<TensorMap(const Case&, const Profile&)>;

bool AskTensors(const RunOptions& asked, const Case& c, const std::string& name,
                const std::string& title, const InputsOf& inputs, RunReport* report) {
  const CaseKind kind = KindOf(c);
  const StatedAnswer& says = StatedBy(kind, name, asked.Limits());
  RunOptions options = asked;
  if (options.plan.empty() && says.plan.empty()) options.plan = options.file_plan;
  Question question;
  question.c = c;
  question.profile =
      ProfileOf(options, options.file_profile.empty() ? Print(says.profile) : options.file_profile);
  question.inputs = inputs(c, question.profile);
  question.plan = PlanOf(options, says.plan);
  const std::unique_ptr<Implementation> implementation =
      MakeImplementation(kind, name, question.plan, question.profile, options.Limits());
  CaseResult result;
  result.name = title;
  result.verdict.case_text = Print(question.c);
  result.verdict.implementation = ObservedName(implementation->GetCapabilities(), name);
  result.verdict.command = CommandText(options, question, name, options.data);
  return report->Judge(std::move(result), [&] {
    const StatedBySelf stated = {options.plan.empty(), options.profile.empty()};
    return AskAndJudge(*implementation, name, question, stated, options.common.Judge(), nullptr,
                       OnInterrupt());
  });
}

// Of kinds whose conventions an implementation states itself, and which are judged operation by
// operation.
void RefuseConventions(const RunOptions& options, const Case& c) {
  if (options.common.sample_rows > 0) {
    throw Error(ErrorCode::kUsage, fmt::format("every row of a {} case is judged", KindName(c)),
                "--rows");
  }
  if (options.plan.empty() && options.profile.empty()) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("a {} case is judged by the plan and profile that the implementation "
                          "states",
                          KindName(c)),
              options.plan.empty() ? "--profile" : "--plan");
}

// A trace of operations: the cache is judged step by step, by tokens and bytes.
bool AskTrace(const RunOptions& options, const Case& c, const std::string& name,
              const std::string& title, const InputsOf&, RunReport* report) {
  RefuseConventions(options, c);
  const std::unique_ptr<CacheFactory> factory = MakeCacheFactory(name, options.Limits());
  const std::unique_ptr<TraceStore> store = MakeTraceStore(options.store);
  if (store != nullptr && factory->OwnStore() != nullptr) {
    throw Error(ErrorCode::kUsage, "an implementation in another process saves there", "--store");
  }
  CaseResult result;
  result.name = title;
  result.verdict.case_text = Print(c);
  const CacheCapabilities capabilities = factory->GetCapabilities();
  result.verdict.implementation = ObservedName(capabilities, name);
  result.verdict.command = "kvcheck run " + ShellWord(Print(c)) + " --impl " + ShellWord(name);
  if (store != nullptr) result.verdict.command += " --store " + options.store;
  return report->Judge(std::move(result), [&] {
    return EvaluateCacheCase(std::get<CacheCase>(c), factory.get(), store.get());
  });
}

// A history of requests: rows are judged after every operation.
bool AskHistory(const RunOptions& options, const Case& c, const std::string& name,
                const std::string& title, const InputsOf&, RunReport* report) {
  RefuseConventions(options, c);
  if (options.store != kMemoryStore) {
    throw Error(ErrorCode::kUsage, "a prefix case has a folder of its own", "--store");
  }
  const std::unique_ptr<PrefixImplementation> implementation =
      MakePrefixImplementation(name, options.Limits());
  CaseResult result;
  result.name = title;
  result.verdict.case_text = Print(c);
  result.verdict.implementation = ObservedName(implementation->GetCapabilities(), name);
  result.verdict.command = "kvcheck run " + ShellWord(Print(c)) + " --impl " + ShellWord(name);
  return report->Judge(std::move(result), [&] {
    return EvaluatePrefixCase(std::get<PrefixCase>(c), implementation.get());
  });
}

using AskCase = bool (*)(const RunOptions& options, const Case& c, const std::string& name,
                         const std::string& title, const InputsOf& inputs, RunReport* report);
// False when the run was interrupted.
constexpr KindTable<AskCase> kAsk = {{{
    AskTensors,  // codec
    AskTensors,  // attention
    AskTensors,  // tensor: whoever is named declines
    AskTrace,    // cache
    AskHistory,  // prefix
}}};

int RunGenerated(const RunOptions& options) {
  const Case c = ParseCase(options.case_text);
  const bool is_default = options.implementation.empty();
  const std::string name = is_default ? DefaultImplementation(KindOf(c)) : options.implementation;
  const std::string title = is_default ? DefaultTitle("", c, name) : "";
  RunReport report("run", options.common, 1);
  report.WatchInterrupts();
  kAsk[KindOf(c)](options, c, name, title, GenerateCaseInputs, &report);
  return report.Finish();
}

// A file of cases is data, perhaps a stranger's: it may name implementations that are here (those
// of this build, adapters that were installed beside it), and no program to be started.
void CheckCommands(const std::vector<CaseEntry>& entries, const std::string& path, bool allowed) {
  std::set<std::string> told;
  for (const CaseEntry& entry : entries) {
    const std::string& command = entry.implementation;
    if (!IsCommandLine(command) || !told.insert(command).second) continue;
    const std::string where = fmt::format("{}:{}", path, entry.line);
    if (!allowed) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("the file names a command line as implementation, and would run {}: "
                              "--allow-commands lets it, --impl names another",
                              fmt::join(SplitCommandLine(command), " ")),
                  where);
    }
    PrintNotice(fmt::format("kvcheck: {} runs {}", where, command));
  }
}

// What the file says of a case counts where the command line says nothing.
int RunFile(const RunOptions& options, const std::string& path) {
  const std::vector<CaseEntry> entries = ReadCases(path, OnInterrupt());
  if (options.implementation.empty()) CheckCommands(entries, path, options.allow_commands);
  RunReport report("run", options.common, static_cast<int64_t>(entries.size()));
  report.WatchInterrupts();
  for (const CaseEntry& entry : entries) {
    RunOptions of_case = options;
    if (of_case.implementation.empty()) of_case.implementation = entry.implementation;
    std::string title = entry.name;
    if (of_case.implementation.empty()) {
      of_case.implementation = DefaultImplementation(KindOf(entry.c));
      title = DefaultTitle(title, entry.c, of_case.implementation);
    }
    of_case.file_plan = entry.plan.empty() ? kDefaultCasePlan : entry.plan;
    of_case.file_profile = entry.profile;
    const bool more = kAsk[KindOf(entry.c)](of_case, entry.c, of_case.implementation, title,
                                            GenerateCaseInputs, &report);
    if (!more) break;
  }
  return report.Finish();
}

int RunStored(const RunOptions& options) {
  const DataPlace place = ParsePlace(options.data);
  const StoredFile file(place.file);
  const GoldenCase& outline = file.golden().Outline(place.name);
  const Case c = ParseCase(options.case_text.empty() ? outline.case_text : options.case_text);
  if (!options.implementation.empty()) {
    RunReport report("run", options.common, 1);
    report.WatchInterrupts();
    const auto inputs = [&](const Case& asked, const Profile& profile) {
      return GoldenInputs(file, outline, asked, profile);
    };
    kAsk[KindOf(c)](options, c, options.implementation, "", inputs, &report);
    return report.Finish();
  }
  if (options.store != kMemoryStore) {
    throw Error(ErrorCode::kUsage, "what is recorded does not save again", "--store");
  }
  std::vector<StoredAnswer> answers;
  for (StoredAnswer& answer : FindAnswers(file.source().index(), place.name, c)) {
    if (place.impl.empty() || place.impl == answer.impl) answers.push_back(std::move(answer));
  }
  if (answers.empty()) {
    throw Error(
        ErrorCode::kSelection,
        fmt::format("case '{}' has no observed outputs{}; name an implementation with --impl",
                    place.name, place.impl.empty() ? "" : " of '" + place.impl + "'"),
        place.file);
  }
  RunReport report("run", options.common, static_cast<int64_t>(answers.size()));
  report.WatchInterrupts();
  for (const StoredAnswer& answer : answers) {
    CaseResult result;
    result.name = place.name + "/" + answer.impl;
    result.verdict.case_text = Print(c);
    result.verdict.implementation = ImplementationText(answer);
    const bool more = report.Judge(std::move(result), [&] {
      StoredAnswer said = answer;
      if (!options.plan.empty()) said.plan = options.plan;
      if (!options.profile.empty()) said.profile = options.profile;
      Verdict verdict =
          JudgeStoredAnswer(file, outline, c, file, said, options.common.Judge(), OnInterrupt());
      verdict.command =
          StoredCommand(options, c, said, place.file + "#" + place.name + "/" + answer.impl);
      return verdict;
    });
    if (!more) break;
  }
  return report.Finish();
}

}  // namespace

void AddRunCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app->add_subcommand(
      "run", "Judge one case: an implementation on generated data, or tensors of a golden file");
  command->footer(
      "Example: kvcheck run 'attention hq=8 hkv=2 l=4 t=129 d=64 q=bf16 k=bf16 v=bf16 out=bf16 "
      "data=gauss:1'\n           --plan base=plain_f32 --impl 'simulated:base=plain_f32 p=bf16'");
  CLI::Option* case_option = command->add_option("CASE", options->case_text,
                                                 "The case, or a file FILE.case or FILE.cases; may "
                                                 "be left out with --data, which has its own");
  CLI::Option* file =
      command
          ->add_option("--file", options->file,
                       "A file of cases (tools/suites/README.md): a suite, or what fuzz wrote")
          ->type_name("FILE")
          ->excludes(case_option);
  command->add_option(
      "--plan", options->plan,
      "How the implementation computes (default: what it says, else base=stranger)");
  command->add_option("--profile", options->profile, "Which conventions it follows");
  command->add_option("--impl", options->implementation,
                      "Who answers (default: " + DefaultImplementation(CaseKind::kCache) +
                          ", as in fuzz and gate, and named in the first line). " +
                          ImplementationsHelp());
  CLI::Option* data = command->add_option(
      "--data", options->data,
      "FILE#NAME: inputs, and without --impl the observed outputs, of a golden file's case; "
      "FILE#NAME/IMPL: of one implementation");
  data->excludes(file);
  command->add_flag("--allow-commands", options->allow_commands,
                    "Start what a file of cases names as its implementation by a command line: "
                    "only of files whose author may run programs here");
  command->add_option("--store", options->store,
                      "Where the caches of a trace save: memory (default), or hdf5: files in a "
                      "folder of their own");
  command
      ->add_option("--limit", options->limit,
                   "An implementation in another process hangs that makes no progress for this "
                   "long; its start may take a minute, with signs of life ten")
      ->type_name("T")
      ->capture_default_str();
  AddCommonOptions(command, &options->common);
  AddRowsOptions(command, &options->common);
  command->callback([=] {
    *chosen = [=] {
      options->common.Check();
      if (case_option->empty() && data->empty() && file->empty()) {
        throw Error(ErrorCode::kUsage, "give a CASE, --file FILE, or --data FILE#NAME", "run");
      }
      if (!file->empty()) return RunFile(*options, options->file);
      // No text of a case ends so.
      const bool is_file =
          options->case_text.ends_with(".case") || options->case_text.ends_with(".cases");
      if (data->empty() && is_file) {
        return RunFile(*options, options->case_text);
      }
      return data->empty() ? RunGenerated(*options) : RunStored(*options);
    };
  });
}

}  // namespace kvcheck
