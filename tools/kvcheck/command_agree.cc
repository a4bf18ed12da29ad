// kvcheck agree: does a model say the same over a quantized cache, token by token of a given text?

#include <fmt/format.h>

#include <algorithm>
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
  std::string implementation = "optimized";
  std::string model = "golden/model";
  std::string text = "golden/model/held_out.txt";
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

int Agreement(const AgreeOptions& options) {
  CheckReportPlaces({{"--json", options.json},
                     {"--write-logits", options.write_logits},
                     {"--plot", options.plot}},
                    {options.text, options.model});
  AgreeQuestion question = QuestionOf(options);
  const bool writes = !options.write_logits.empty();
  if (writes && options.formats.empty()) {
    const std::vector<TextWindow> windows = WindowsOf(question);
    WriteReferenceLogits(windows, FullPrecisionLogits(question, windows, OnInterrupt()),
                         options.write_logits);
    return kExitPassed;
  }
  const PathFault fault = ParsePath(options.implementation);
  if (fault == PathFault::kLeftPadding && question.batch == 1) {
    throw Error(ErrorCode::kUsage, "a batch of one row has no padding: ask with --batch 2 or more",
                "--impl");
  }
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

int RunAgree(const AgreeOptions& options) {
  if (!options.keep.empty()) return Keep(options);
  return options.logits.empty() ? Agreement(options) : CompareLogits(options);
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
                   "its folder")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--text", options->text, "The text, whose bytes are the tokens")
      ->type_name("FILE")
      ->capture_default_str();
  std::string known = "optimized";
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
  options->question.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  command
      ->add_option("-j,--threads", options->question.threads,
                   "Threads, on which nothing depends but speed (default: all of the hardware)")
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
      ->check(CLI::NonNegativeNumber)
      ->type_name("X")
      ->needs(logits);
  command
      ->add_option("--got-error", options->got_error,
                   "The same of GOT alone: its noise floor, say, beside an exact GOLD")
      ->check(CLI::NonNegativeNumber)
      ->type_name("X")
      ->needs(logits);
  command
      ->add_option("--plot", options->plot,
                   "Draw KL and changed top-1 tokens against bits to FILE, as SVG")
      ->type_name("FILE")
      ->excludes(logits);
  command
      ->add_option("--write-logits", options->write_logits,
                   "Write what the reference says to FILE, for --logits: over the stored bytes of "
                   "the one --format, or, without --format, in full precision and nothing else")
      ->type_name("FILE")
      ->excludes(logits);
  CLI::Option* keep = command
                          ->add_option("--keep", options->keep,
                                       "Write the most likely tokens of this dump to --out, as "
                                       "safetensors: a small base to compare with")
                          ->type_name("FILE")
                          ->excludes(logits);
  CLI::Option* out =
      command->add_option("--out", options->out, "Of --keep")->type_name("FILE")->needs(keep);
  keep->needs(out);
  AddCountOption(command, "--top", &options->top, 1 << 20, "Tokens of a position, of --keep");
  command->callback([=] { *chosen = [=] { return RunAgree(*options); }; });
}

}  // namespace kvcheck
