// kvcheck bench formats: bits per element, compression, errors of rows and of attention over them,
// speed of the optimized codec; a table, JSON, a picture.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "reference/spec/error.h"
#include "tools/kvcheck/bench_run.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/measure/bench_json.h"
#include "tools/measure/bench_text.h"
#include "tools/measure/format_bench.h"
#include "tools/measure/format_choice.h"
#include "tools/measure/format_plot.h"
#include "tools/report/output_file.h"
#include "tools/report/summary.h"

namespace kvcheck {
namespace {

struct BenchFormatsOptions {
  std::vector<std::string> formats;
  int64_t head_dim = 128;
  int64_t rows = 4096;
  std::string data{kNormalData};
  std::string type = "f32";
  std::vector<std::string> tensors;
  int64_t queries = 16;
  uint64_t seed = 1;
  std::string profile;
  int rounds = 9;
  bool no_times = false;
  std::string plot;
  std::string json;
  int threads = 1;
};

KvRows RowsOf(const BenchFormatsOptions& options) {
  if (!options.tensors.empty()) return ReadKvRows(options.tensors);
  const DType type = *ParseDType(options.type);
  KvRows rows;
  rows.tokens = options.rows;
  rows.k = DrawRows(options.data, options.seed, "k", type, options.rows, options.head_dim);
  rows.v = DrawRows(options.data, options.seed + 1, "v", type, options.rows, options.head_dim);
  return rows;
}

void Write(const BenchFormatsOptions& options, const FormatBenchQuestion& question,
           const Measured<FormatFigures>& measured, const std::string& data) {
  const std::vector<FormatFigures>& figures = measured.figures;
  // Of nothing there is nothing to draw.
  const bool draws = !options.plot.empty() && !figures.empty();
  if (draws) WriteOutput(options.plot, FormatPlot(question, figures, data));
  if (!options.json.empty()) {
    WriteOutput(options.json, FormatBenchJson(question, figures, data, measured.interrupted));
  }
  if (options.json != "-" && (options.plot != "-" || !draws)) {
    std::cout << FormatBenchText(question, figures, data, measured.interrupted) << std::flush;
  }
}

int BenchFormats(const BenchFormatsOptions& options) {
  if (options.tensors.size() > 2) {
    throw Error(ErrorCode::kUsage, "one tensor is K and V, two are K, then V", "--tensor");
  }
  std::vector<std::string> files;
  for (const std::string& place : options.tensors) {
    files.push_back(place.substr(0, place.rfind(':')));
  }
  CheckReportPlaces({{"--json", options.json}, {"--plot", options.plot}}, files);

  const std::string data =
      options.tensors.empty() ? options.data : fmt::format("{}", fmt::join(options.tensors, ", "));
  const FormatBenchQuestion unread;
  ReportOnce<Measured<FormatFigures>> report(
      {{}, true}, [&](const auto& measured) { Write(options, unread, measured, data); });
  FormatBenchQuestion question;
  question.rows = RowsOf(options);
  question.formats = ChooseFormats(options.formats, question.rows.KDim(),
                                   [&](int64_t group) { return group <= question.rows.tokens; });
  question.queries = options.queries;
  question.seed = options.seed;
  question.profile =
      options.profile.empty() ? OptimizedCodecProfile() : ParseProfile(options.profile);
  question.threads = options.threads;
  question.rounds = options.no_times ? 0 : options.rounds;
  return Measure<FormatFigures>(
      &report, [&](const auto& measured) { Write(options, question, measured, data); },
      [&](Progress* progress, const auto& so_far) {
        return MeasureFormats(question, OnInterrupt(), progress, so_far);
      });
}

}  // namespace

void AddBenchFormatsCommand(CLI::App* bench, ChosenCommand* chosen) {
  auto options = std::make_shared<BenchFormatsOptions>();
  CLI::App* command = bench->add_subcommand(
      "formats", "Bits, compression, errors of rows and of attention, speed, by storage format");
  command->footer(
      "Errors are the reference's, in double; speed is the optimized codec's. Exit code 0 says "
      "that\nit was measured, and nothing about how good a format is.\n"
      "Example: kvcheck bench formats --format 'affine:[48]:g64:*' --format 'q*' --plot "
      "formats.svg");
  command
      ->add_option("--format", options->formats,
                   "A format, or a pattern of formats ('affine:4:*', '*'); may be repeated "
                   "(default: each kind and row type once)")
      ->type_name("FORMAT");
  CLI::Option* tensor =
      command
          ->add_option("--tensor", options->tensors,
                       "Rows of a file instead of drawn ones, (..., tokens, head_dim): K, and V "
                       "where it is given twice; one alone is both")
          ->type_name("FILE:NAME");
  command->add_option("--head-dim", options->head_dim, "Channels of a row")
      ->transform(Decimal())
      ->check(CLI::Range(1, 65536))
      ->type_name("N")
      ->capture_default_str()
      ->excludes(tensor);
  command->add_option("--rows", options->rows, "Tokens of K and of V")
      ->transform(Decimal())
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str()
      ->excludes(tensor);
  command
      ->add_option("--data", options->data,
                   fmt::format("What rows are drawn from: {}", fmt::join(BenchRegimes(), ", ")))
      ->type_name("REGIME")
      ->capture_default_str()
      ->excludes(tensor);
  command->add_option("--type", options->type, "Type of the drawn rows: f32, f16, bf16")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->type_name("TYPE")
      ->capture_default_str()
      ->excludes(tensor);
  command->add_option("--queries", options->queries, "Queries a head, N(0, 1)")
      ->transform(Decimal())
      ->check(CLI::Range(1, 65536))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of rows and queries")
      ->transform(Decimal())
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--profile", options->profile,
                      "Conventions of whoever writes and reads (default: those of the optimized "
                      "codec, " +
                          Print(OptimizedCodecProfile()) + ")");
  command->add_option("--rounds", options->rounds, "Rounds of timing, whose median is shown")
      ->transform(Decimal())
      ->check(CLI::Range(1, 10000))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--no-times", options->no_times,
                    "Leave out speed: then the output is the same in every run");
  command
      ->add_option("--json", options->json,
                   "Write a JSON report to FILE; - is standard output, in place of the text")
      ->type_name("FILE");
  command->add_option("--plot", options->plot, "Draw errors against bits to FILE, as SVG")
      ->type_name("FILE");
  options->threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  command
      ->add_option("-j,--threads", options->threads,
                   "Threads of the reference; errors do not depend on it, and speed is that of one "
                   "(default: all of the hardware)")
      ->transform(Decimal())
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->callback([=] { *chosen = [=] { return BenchFormats(*options); }; });
}

}  // namespace kvcheck
