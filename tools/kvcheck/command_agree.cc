// kvcheck agree: does a model say the same over a quantized cache, token by token of a given text?

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "golden/decoder_file.h"
#include "golden/input_file.h"
#include "golden/raw_file.h"
#include "golden/text_file.h"
#include "reference/spec/error.h"
#include "tools/agree/agree.h"
#include "tools/agree/agree_text.h"
#include "tools/agree/compare_dumps.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/reference_logits.h"
#include "tools/agree/storage_choice.h"
#include "tools/agree/token_ids.h"
#include "tools/corridor/installed_data.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/notice.h"
#include "tools/kvcheck/report_once.h"
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
  std::string tokens;       // a file of token ids, in place of a text
  bool no_times = false;
  std::string json;
  std::string write_logits;
  std::string plot;
  // Of dumps.
  std::vector<std::string> logits;
  bool judge = false;
  std::string noise;
  double got_noise = 0;
  std::optional<double> logit_error;
  std::optional<double> got_error;
  int64_t head_dim = 128;
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
  if (options.text.empty() && options.tokens.empty()) {
    options.text = DefaultModelFolder("--text") + "/held_out.txt";
  }
  if (options.model.empty()) options.model = DefaultModelFolder("--model");
  return options;
}

// What other tools read, and this one does not.
void RefuseOtherModels(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path named = path;
  if (fs::is_directory(path, ignored) && !fs::exists(named / "config.json", ignored)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
      if (entry.path().extension() == ".gguf") named = entry.path();
    }
  }
  bool is_gguf = named.extension() == ".gguf";
  if (!is_gguf && fs::is_regular_file(named, ignored)) {
    const InputFile file(named.string());
    std::array<char, 4> head{};
    if (file.size() >= 4) file.ReadAt(0, head.data(), head.size());
    is_gguf = std::string_view(head.data(), head.size()) == "GGUF";
  }
  if (!is_gguf || !fs::exists(named, ignored)) return;
  throw Error(ErrorCode::kUnsupported,
              "GGUF is not read: give the folder of safetensors and config.json that it was made "
              "from; or let llama-perplexity run it once with each cache type, and give kvcheck "
              "agree --logits what --kl-divergence-base wrote",
              named.string());
}

// Texts are read as bytes, which are tokens of a model that has exactly these.
std::vector<int64_t> BytesOf(const std::string& path, int64_t vocabulary) {
  constexpr int64_t kBytes = 256;
  if (vocabulary > kBytes) {
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("the model has {} tokens, and a text is read as bytes, which are other "
                            "tokens than its own: give what its tokenizer makes of the text by "
                            "--tokens (a list of ids, JSON or one after the other)",
                            vocabulary),
                path);
  }
  std::vector<int64_t> tokens;
  for (const char byte : ReadWholeText(path, kMostTextBytes)) {
    const auto token = static_cast<int64_t>(static_cast<unsigned char>(byte));
    if (token >= vocabulary) {
      throw Error(ErrorCode::kIllegalCase,
                  fmt::format("a byte {} is no token of a model of {}: texts are read as bytes, "
                              "and models of other tokens are given token ids (--tokens)",
                              token, vocabulary),
                  path);
    }
    tokens.push_back(token);
  }
  return tokens;
}

// The model and the tokens of the text.
AgreeQuestion QuestionOf(const AgreeOptions& options) {
  AgreeQuestion question = options.question;
  RefuseOtherModels(options.model);
  question.model = ReadDecoderFile(options.model);
  const int64_t vocabulary = question.model.config.vocabulary;
  const bool has_ids = !options.tokens.empty();
  question.text_path = has_ids ? options.tokens : options.text;
  question.text =
      has_ids ? ReadTokenIds(options.tokens, vocabulary) : BytesOf(options.text, vocabulary);
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

// Half a file would be taken for a whole one.
void SayNothingIsWritten(const std::string& path) {
  PrintNotice(fmt::format("kvcheck: interrupted: {} was not written", path));
}

// Writes the file that is all that is asked for.
int OrSaysNothingIsWritten(const std::string& path, const std::function<void()>& write) {
  struct Nothing {};
  ReportOnce<Nothing> report({}, [&](Nothing) { SayNothingIsWritten(path); });
  try {
    write();
  } catch (const Cancelled&) {
    report.Finish({});
    return kExitInterrupted;
  } catch (...) {
    report.Abandon();
    throw;
  }
  report.Abandon();
  return kExitPassed;
}

// The reports of a model, and what is said of logits that are not written.
void WriteReports(const AgreeOptions& options, const AgreeQuestion& question,
                  const AgreeReport& report) {
  if (!options.write_logits.empty() && report.interrupted) {
    SayNothingIsWritten(options.write_logits);
  }
  if (!options.json.empty()) WriteOutput(options.json, AgreeJson(question, report));
  // Of nothing there is nothing to draw.
  if (!options.plot.empty() && !report.storages.empty())
    WriteOutput(options.plot, AgreePlot(question, report));
  if (options.json != "-" && (options.plot != "-" || report.storages.empty())) {
    std::cout << AgreeText(question, report) << std::flush;
  }
}

// What is reported of a model that is not read yet.
AgreeQuestion UnreadQuestion(const AgreeOptions& options) {
  AgreeQuestion question = options.question;
  question.model.path = options.model;
  question.text_path = options.tokens.empty() ? options.text : options.tokens;
  PathStorage storage;
  storage.fault = ParsePath(options.implementation);
  question.storages = {storage};
  return question;
}

int Agreement(const AgreeOptions& given) {
  const AgreeOptions options = WithDefaults(given);
  CheckReportPlaces({{"--json", options.json},
                     {"--write-logits", options.write_logits},
                     {"--plot", options.plot}},
                    {options.text, options.tokens, options.model});
  const bool writes = !options.write_logits.empty();
  if (writes && options.formats.empty()) {
    RefuseWithFullPrecision(options);
    return OrSaysNothingIsWritten(options.write_logits, [&] {
      const AgreeQuestion question = QuestionOf(options);
      const std::vector<TextWindow> windows = WindowsOf(question);
      WriteReferenceLogits(windows, FullPrecisionLogits(question, windows, OnInterrupt()),
                           options.write_logits);
    });
  }
  const PathFault fault = ParsePath(options.implementation);
  const AgreeQuestion unread = UnreadQuestion(options);
  AgreeReport nothing;
  nothing.interrupted = true;
  ReportOnce<AgreeReport> reports(
      nothing, [&](const AgreeReport& report) { WriteReports(options, unread, report); });
  AgreeQuestion question = QuestionOf(options);
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
  reports.ChangeWriter([&](const AgreeReport& report) { WriteReports(options, question, report); });
  std::vector<Matrix> stored;
  AgreeReport report;
  try {
    report = Agree(question, OnInterrupt(), writes ? &stored : nullptr,
                   [&](AgreeReport so_far) { reports.Set(std::move(so_far)); });
    if (writes && !report.interrupted) {
      AgreeReport unwritten = report;
      unwritten.interrupted = true;
      reports.Set(std::move(unwritten));
      WriteReferenceLogits(WindowsOf(question), stored, options.write_logits);
    }
  } catch (...) {
    reports.Abandon();
    throw;
  }
  reports.Finish(report);
  return report.interrupted ? kExitInterrupted : ExitCodeOf(report.outcome());
}

// Dumps of engines.
int CompareLogits(const AgreeOptions& options) {
  DumpQuestion question;
  question.gold = options.logits.front();
  question.noise = options.noise;
  question.got_noise = options.got_noise;
  question.logit_error = options.logit_error;
  question.got_error = options.got_error;
  question.threads = options.question.threads;
  question.judge = options.judge;
  std::vector<GotDump> gots;
  std::vector<std::string> inputs = {ParseTensorPlace(question.gold).path,
                                     ParseTensorPlace(options.noise).path};
  for (size_t i = 1; i < options.logits.size(); ++i) {
    gots.push_back(ParseGotDump(options.logits[i], options.head_dim));
    inputs.push_back(ParseTensorPlace(gots.back().path).path);
  }
  CheckReportPlaces({{"--json", options.json}}, inputs);
  DumpsReport nothing;
  nothing.gots = gots;
  nothing.interrupted = true;
  ReportOnce<DumpsReport> reports(nothing, [&](const DumpsReport& report) {
    if (!options.json.empty()) WriteOutput(options.json, DumpJson(question, report));
    if (options.json != "-") std::cout << DumpText(question, report) << std::flush;
  });
  const DumpsReport report =
      CompareSeveralDumps(question, std::move(gots), OnInterrupt(),
                          [&](DumpsReport so_far) { reports.Set(std::move(so_far)); });
  reports.Finish(report);
  return report.interrupted ? kExitInterrupted : ExitCodeOf(report.outcome());
}

int Keep(const AgreeOptions& options) {
  CheckReportPlaces({{"--out", options.out}}, {options.keep});
  const std::unique_ptr<LogitsDump> dump = OpenLogitsDump(options.keep);
  return OrSaysNothingIsWritten(
      options.out, [&] { WriteTopTokens(dump.get(), options.top, options.out, OnInterrupt()); });
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
        "--text", "--tokens", "--impl", "--no-times", "--plot", "--write-logits"}) {
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
      "Of a model: flips against the reference over the same stored bytes fail unless arithmetic "
      "explains\nthem; what a format changes beside full precision is measured, and fails "
      "nothing.\n"
      "Of dumps (--logits): figures, and a verdict only under --judge. Exit 3 where figures mean "
      "nothing\n(a file beside itself, a gold that decides nothing), 1 where a number is none.\n"
      "Which cache type for my model, in any engine:\n"
      "  kvcheck agree --logits f16.kld q8_0=q8.kld q8_0,q4_0=q8q4.kld fp8@8=other.json\n"
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
  command
      ->add_option("--tokens", options->tokens,
                   "In place of --text: its token ids, as the model's tokenizer makes them: a JSON "
                   "list, numbers one after the other, or a tensor of i32 or i64")
      ->type_name("FILE")
      ->excludes(command->get_option("--text"));
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
                       "Instead of a model: what engines said over one text, in files of theirs "
                       "(safetensors, llama-perplexity's --kl-divergence-base, the JSON of vLLM, "
                       "SGLang and OpenAI). GOLD, then one or more to compare with it: FILE, "
                       "CACHE=FILE (a format, or K,V), or LABEL@BITS=FILE")
          ->expected(2, 1000)
          ->type_name("GOLD GOT...");
  CLI::Option* judge =
      command
          ->add_flag("--judge", options->judge,
                     "Of --logits: a verdict. A changed top-1 token fails unless errors explain "
                     "it; so does a changed log-probability, where its error is stated")
          ->needs(logits);
  command
      ->add_option("--noise", options->noise,
                   "GOLD again, another run of its engine (another batch, say): what differs "
                   "between the two is measured, and explains a flip")
      ->type_name("FILE")
      ->needs(logits);
  command
      ->add_option(
          "--got-noise", options->got_noise,
          "Of --judge: the noise floor of GOT's engine in nats, the figure `largest` of two "
          "runs of it: explains a flip")
      ->check(Nats())
      ->type_name("X")
      ->needs(judge);
  command
      ->add_option("--logit-error", options->logit_error,
                   "Of --judge: how far any log-probability of either engine may be off, in nats")
      ->check(Nats())
      ->type_name("X")
      ->needs(judge);
  command
      ->add_option("--got-error", options->got_error,
                   "Of --judge: the same of GOT only, beside --logit-error")
      ->check(Nats())
      ->type_name("X")
      ->needs(judge);
  AddCountOption(command, "--head-dim", &options->head_dim, 1 << 16,
                 "Of --logits: channels of a head, for the bits per element of a CACHE");
  command->get_option("--head-dim")->needs(logits);
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
