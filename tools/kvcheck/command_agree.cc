// kvcheck agree: does a model say the same over a quantized cache, token by token of a given text?

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "golden/decoder_file.h"
#include "golden/text_file.h"
#include "reference/spec/error.h"
#include "tools/agree/agree.h"
#include "tools/agree/agree_text.h"
#include "tools/agree/compare_dumps.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/reference_logits.h"
#include "tools/agree/storage_choice.h"
#include "tools/corridor/installed_data.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/report/output_file.h"
#include "tools/report/summary.h"

namespace kvcheck {
namespace {

constexpr size_t kMostTextBytes = size_t{1} << 30;

struct AgreeOptions {
  AgreeQuestion question;
  std::vector<std::string> formats;
  std::vector<std::string> layouts;
  std::string implementation = PrintPath(PathFault::kNone);
  std::string model, text;  // "": those that come with kvcheck
  bool no_times = false;
  std::string json;
  std::string write_logits;
  std::string plot;
  // Of dumps.
  std::vector<std::string> logits;
  std::string noise;
  double logit_error = 0;
  double got_error = 0;
  std::string keep;
  std::string out;
  int64_t top = 64;
};

int HardwareThreads() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

int ExitCodeOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return kExitPassed;
    case Outcome::kFail:
      return kExitFailed;
    default:
      return kExitMistrusted;
  }
}

// The trained model, which the package for Python leaves out for its size. option: for whose sake.
std::string DefaultModelFolder(const std::string& option) {
  const std::vector<std::string> folders = InstalledFolders("model");
  if (!folders.empty()) return folders.front();
  throw Error(ErrorCode::kUsage,
              "the trained model is not beside this program (share/kvcheck/model): give --model "
              "FOLDER and --text FILE, as golden/model and golden/model/held_out.txt of kvcheck's "
              "sources, or models and texts of your own",
              option);
}

AgreeOptions WithDefaults(AgreeOptions options) {
  if (options.text.empty()) options.text = DefaultModelFolder("--text") + "/held_out.txt";
  if (options.model.empty()) options.model = DefaultModelFolder("--model");
  return options;
}

// The model and the tokens of the text.
AgreeQuestion QuestionOf(const AgreeOptions& options) {
  AgreeQuestion question = options.question;
  question.model = ReadDecoderFile(options.model);
  question.text_path = options.text;
  for (const char byte : ReadWholeText(options.text, kMostTextBytes)) {
    const auto token = static_cast<int64_t>(static_cast<unsigned char>(byte));
    if (token >= question.model.config.vocabulary) {
      throw Error(ErrorCode::kIllegalCase,
                  fmt::format("a byte {} is no token of a model of {}: texts are read as bytes, "
                              "and models of other tokens are asked by their logits (--logits)",
                              token, question.model.config.vocabulary),
                  options.text);
    }
    question.text.push_back(token);
  }
  return question;
}

// What is written in full precision is the reference's, of no path and no storage, and there is no
// report of it.
void RefuseWithFullPrecision(const AgreeOptions& options) {
  const auto refuse = [](bool given, const char* option) {
    if (!given) return;
    throw Error(ErrorCode::kUsage,
                "logits in full precision are written and nothing else is done: name the one "
                "--format whose stored bytes are meant, or leave this option out",
                option);
  };
  refuse(!options.json.empty(), "--json");
  refuse(!options.plot.empty(), "--plot");
  refuse(!options.layouts.empty(), "--layout");
  refuse(ParsePath(options.implementation) != PathFault::kNone, "--impl");
}

void RefuseHiddenFault(PathFault fault, const AgreeQuestion& question) {
  std::vector<int64_t> lengths;
  for (const TextWindow& window : WindowsOf(question)) {
    lengths.push_back(static_cast<int64_t>(window.tokens.size()));
  }
  const std::string why = WhyFaultIsHidden(fault, lengths);
  if (!why.empty()) throw Error(ErrorCode::kUsage, why, "--impl");
}

int Agreement(const AgreeOptions& given) {
  const AgreeOptions options = WithDefaults(given);
  CheckReportPlaces({{"--json", options.json},
                     {"--write-logits", options.write_logits},
                     {"--plot", options.plot}},
                    {options.text, options.model});
  AgreeQuestion question = QuestionOf(options);
  const bool writes = !options.write_logits.empty();
  if (writes && options.formats.empty()) {
    RefuseWithFullPrecision(options);
    const std::vector<TextWindow> windows = WindowsOf(question);
    WriteReferenceLogits(windows, FullPrecisionLogits(question, windows, OnInterrupt()),
                         options.write_logits);
    return kExitPassed;
  }
  const PathFault fault = ParsePath(options.implementation);
  RefuseHiddenFault(fault, question);
  question.storages =
      ChooseStorages(options.formats, options.layouts, fault, question.model.config.head_dim);
  if (writes && question.storages.size() != 1) {
    throw Error(ErrorCode::kUsage,
                fmt::format("logits over the bytes of one format are written, and {} are asked "
                            "for: name one --format and one --layout",
                            question.storages.size()),
                "--write-logits");
  }
  question.times = !options.no_times;
  std::vector<Matrix> stored;
  const AgreeReport report = Agree(question, OnInterrupt(), writes ? &stored : nullptr);
  if (writes) WriteReferenceLogits(WindowsOf(question), stored, options.write_logits);
  if (!options.json.empty()) WriteOutput(options.json, AgreeJson(question, report));
  if (!options.plot.empty()) WriteOutput(options.plot, AgreePlot(question, report));
  if (options.json != "-" && options.plot != "-") {
    std::cout << AgreeText(question, report) << std::flush;
  }
  return ExitCodeOf(report.outcome());
}

// Two dumps of engines.
int CompareLogits(const AgreeOptions& options) {
  DumpQuestion question;
  question.gold = options.logits.front();
  question.got = options.logits.back();
  question.noise = options.noise;
  question.logit_error = options.logit_error;
  question.got_error = options.got_error;
  question.threads = options.question.threads;
  std::vector<std::string> inputs = options.logits;
  inputs.push_back(options.noise);
  CheckReportPlaces({{"--json", options.json}}, inputs);
  const DumpReport report = CompareDumps(question, OnInterrupt());
  if (!options.json.empty()) WriteOutput(options.json, DumpJson(question, report));
  if (options.json != "-") std::cout << DumpText(question, report) << std::flush;
  return ExitCodeOf(report.outcome);
}

int Keep(const AgreeOptions& options) {
  CheckReportPlaces({{"--out", options.out}}, {options.keep});
  const std::unique_ptr<LogitsDump> dump = OpenLogitsDump(options.keep);
  WriteTopTokens(dump.get(), options.top, options.out);
  return kExitPassed;
}

int RunAgree(AgreeOptions options) {
  // More would wait for each other, and open as many files.
  options.question.threads = std::min(options.question.threads, HardwareThreads());
  if (!options.keep.empty()) return Keep(options);
  return options.logits.empty() ? Agreement(options) : CompareLogits(options);
}

// An error that is stated: a number from 0, finite.
CLI::Validator Nats() {
  const auto check = [](std::string& text) -> std::string {
    double value = 0;
    const bool read = CLI::detail::lexical_cast(text, value);
    return read && value >= 0 && std::isfinite(value) ? "" : text + " is no number of nats from 0";
  };
  return CLI::Validator(check, "");
}

// What --logits and --keep would not look at: options of a model, and of each other.
void ExcludeOthers(CLI::App* command, CLI::Option* logits, CLI::Option* keep) {
  for (const char* name :
       {"--format", "--layout", "--batch", "--context", "--positions", "--chunk", "--model",
        "--text", "--impl", "--no-times", "--plot", "--write-logits"}) {
    logits->excludes(command->get_option(name));
    keep->excludes(command->get_option(name));
  }
  keep->excludes(logits);
  keep->excludes(command->get_option("--json"));
}

}  // namespace

void AddAgreeCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<AgreeOptions>();
  CLI::App* command = app->add_subcommand(
      "agree", "Does a model still say the same over a quantized cache? Teacher-forced");
  command->footer(
      "Flips against the reference over the same stored bytes fail unless arithmetic explains "
      "them;\nwhat a format changes beside full precision is measured, and fails nothing.\n"
      "Example: kvcheck agree --format q8_0 --format affine:4:g64:bf16 --batch 4");
  command
      ->add_option("--format", options->formats,
                   "A format, a pattern of formats, or K,V; may be repeated (default: full "
                   "precision and one of each kind that engines deploy)")
      ->type_name("FORMAT");
  command
      ->add_option("--layout", options->layouts,
                   "Of layers with a window: linear (all tokens are kept) or ring; may be repeated "
                   "(default: linear)")
      ->type_name("LAYOUT");
  AddCountOption(command, "--batch", &options->question.batch, 64,
                 "Rows of a batch, of different lengths, padded on the left");
  AddCountOption(command, "--context", &options->question.context, 1 << 20,
                 "Tokens of the longest sequence");
  AddCountOption(command, "--positions", &options->question.positions, 1 << 30,
                 "Tokens that are compared, at least");
  AddCountOption(command, "--chunk", &options->question.chunk, 1 << 16, "Tokens of a prefill step");
  command
      ->add_option("--model", options->model,
                   "A decoder of Llama's architecture: safetensors, config.json beside it; or "
                   "its folder (default: the trained one, share/kvcheck/model)")
      ->type_name("FILE");
  command
      ->add_option("--text", options->text,
                   "The text, whose bytes are the tokens (default: the trained model's held-out "
                   "text)")
      ->type_name("FILE");
  std::string known = PrintPath(PathFault::kNone);
  for (const PathFaultRow& row : PathFaults()) {
    known += fmt::format("; fault:{} ({})", row.name, row.help);
  }
  command->add_option("--impl", options->implementation, "The path: " + known)
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--no-times", options->no_times,
                    "Leave out speed: then the output is the same in every run");
  command
      ->add_option("--json", options->json,
                   "Write a JSON report to FILE; - is standard output, in place of the text")
      ->type_name("FILE");
  options->question.threads = HardwareThreads();
  command
      ->add_option("-j,--threads", options->question.threads,
                   "Threads, on which nothing depends but speed (default, and the most that are "
                   "used: all of the hardware)")
      ->transform(Decimal())
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  CLI::Option* logits =
      command
          ->add_option("--logits", options->logits,
                       "Instead of a model: what two engines said over one text, in files of "
                       "theirs (safetensors, llama-perplexity's --kl-divergence-base, vLLM's or "
                       "SGLang's JSON)")
          ->expected(2)
          ->type_name("GOLD GOT");
  command
      ->add_option("--noise", options->noise,
                   "GOLD again, another run: what differs between the two is no finding")
      ->type_name("FILE")
      ->needs(logits);
  command
      ->add_option("--logit-error", options->logit_error,
                   "How far a log-probability of either engine may be off, in nats")
      ->check(Nats())
      ->type_name("X")
      ->needs(logits);
  command
      ->add_option("--got-error", options->got_error,
                   "The same of GOT alone: its noise floor, say, beside an exact GOLD")
      ->check(Nats())
      ->type_name("X")
      ->needs(logits);
  command
      ->add_option("--plot", options->plot,
                   "Draw KL and changed top-1 tokens against bits to FILE, as SVG")
      ->type_name("FILE");
  command
      ->add_option("--write-logits", options->write_logits,
                   "Write what the reference says to FILE, for --logits: over the stored bytes of "
                   "the one --format, or, without --format, in full precision and nothing else")
      ->type_name("FILE");
  CLI::Option* keep = command
                          ->add_option("--keep", options->keep,
                                       "Write the most likely tokens of this dump to --out, as "
                                       "safetensors: a small base to compare with")
                          ->type_name("FILE");
  CLI::Option* out =
      command->add_option("--out", options->out, "Of --keep")->type_name("FILE")->needs(keep);
  keep->needs(out);
  AddCountOption(command, "--top", &options->top, 1 << 20, "Tokens of a position, of --keep");
  command->get_option("--top")->needs(keep);
  ExcludeOthers(command, logits, keep);
  command->callback([=] { *chosen = [=] { return RunAgree(*options); }; });
}

}  // namespace kvcheck
