// kvcheck bench kv-cache: a KV cache quantized when stored and dequantized when fetched, by format
// and length.

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "reference/spec/error.h"
#include "tools/kvcheck/bench_run.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/measure/bench_json.h"
#include "tools/measure/bench_text.h"
#include "tools/measure/format_choice.h"
#include "tools/measure/kv_cache_bench.h"
#include "tools/report/output_file.h"
#include "tools/report/summary.h"

namespace kvcheck {
namespace {

struct BenchKvCacheOptions {
  KvCacheQuestion question;
  std::vector<std::string> formats;
  std::string type = "f16";
  std::string json;
};

int BenchKvCache(const BenchKvCacheOptions& options) {
  KvCacheQuestion question = options.question;
  KvCacheShape& shape = question.shape;
  shape.dtype = *ParseDType(options.type);
  if (shape.heads % shape.kv_heads != 0) {
    throw Error(ErrorCode::kUsage, "query heads are a multiple of key/value heads",
                "--heads, --kv-heads");
  }
  question.formats = ChooseFormats(options.formats, shape.head_dim, [&](int64_t group) {
    return std::all_of(question.seq_lens.begin(), question.seq_lens.end(),
                       [&](int64_t tokens) { return tokens % group == 0; });
  });
  const auto write = [&](const Measured<KvCacheFigures>& measured) {
    if (!options.json.empty()) {
      WriteOutput(options.json, KvCacheJson(question, measured.figures, measured.interrupted));
    }
    if (options.json != "-") {
      std::cout << KvCacheText(question, measured.figures, measured.interrupted) << std::flush;
    }
  };
  ReportOnce<Measured<KvCacheFigures>> report({{}, true}, write);
  return Measure<KvCacheFigures>(&report, write, [&](Progress* progress, const auto& so_far) {
    return MeasureKvCache(question, OnInterrupt(), progress, so_far);
  });
}

}  // namespace

void AddBenchKvCacheCommand(CLI::App* bench, ChosenCommand* chosen) {
  auto options = std::make_shared<BenchKvCacheOptions>();
  CLI::App* command = bench->add_subcommand(
      "kv-cache", "Memory, errors and times of a cache that is quantized when it is stored");
  command->footer(
      "Example: kvcheck bench kv-cache --layers 4 --seq-len 8192,65536 --format 'affine:[48]:g64:"
      "f16' --format q8_0");
  KvCacheShape& shape = options->question.shape;
  AddCountOption(command, "--layers", &shape.layers, 10000, "Layers");
  AddCountOption(command, "--heads", &shape.heads, 10000, "Query heads");
  AddCountOption(command, "--kv-heads", &shape.kv_heads, 10000,
                 "Key/value heads, which are stored");
  AddCountOption(command, "--head-dim", &shape.head_dim, 65536, "Channels of a head");
  command
      ->add_option("--seq-len", options->question.seq_lens,
                   "Tokens; several lengths, separated by commas, are measured one after the other")
      ->delimiter(',')
      ->transform(Decimal())
      ->check(CLI::Range(int64_t{1}, int64_t{100000000}))
      ->type_name("N,...")
      ->capture_default_str();
  command
      ->add_option("--format", options->formats,
                   "A format, or a pattern of formats ('affine:4:*', '*'); may be repeated "
                   "(default: each kind and row type once)")
      ->type_name("FORMAT");
  command->add_option("--type", options->type, "Type of the original: f32, f16, bf16")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_option("--seed", options->question.seed, "Of the rows, N(0, 1)")
      ->transform(Decimal())
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--rounds", options->question.rounds, "Rounds, whose median is shown")
      ->transform(Decimal())
      ->check(CLI::Range(1, 10000))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--json", options->json,
                   "Write a JSON report to FILE; - is standard output, in place of the text")
      ->type_name("FILE");
  command->callback([=] { *chosen = [=] { return BenchKvCache(*options); }; });
}

}  // namespace kvcheck
