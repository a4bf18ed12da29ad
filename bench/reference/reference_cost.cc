// What the reference costs: one attention row with bounds at each step of the precision ladder, per
// instruction set, and the time to judge 1e7 elements.
//
//   reference_cost [--elements 1e7] [--threads N]

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/timing.h"
#include "reference/attention/attention_source.h"
#include "reference/attention/evaluate.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/judge.h"
#include "reference/numerics/convert.h"
#include "reference/spec/implementation.h"

namespace kvcheck {
namespace {

double MedianRowMs(const AttentionSource& source, const TileRequest& request, int64_t tiles) {
  std::vector<double> times;
  int64_t rows = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double start = Now();
    rows = 0;
    for (int64_t i = 0; i < tiles; ++i) rows += source.Tiles(i, request)[0].row_count;
    times.push_back((Now() - start) / static_cast<double>(rows) * 1e3);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// The expected values, rounded to the output's type: what a correctly rounding kernel would give.
MemorySink RoundedAnswer(const AttentionSource& source) {
  MemorySink sink;
  const OutputInfo& info = source.Outputs()[0];
  sink.Declare(info.name, info.dtype, info.shape);
  for (int64_t i = 0; i < source.TileCount(); ++i) {
    const ExpectedTile tile = source.Tiles(i, {})[0];
    std::vector<std::byte> bytes(tile.value.size() * SizeInBytes(info.dtype));
    EncodeFrom(tile.value, info.dtype, bytes.data());
    sink.Write(info.name, tile.first_row * info.row_length, bytes);
  }
  return sink;
}

int Main(int argc, char** argv) {
  double elements = 1e7;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--elements") elements = std::atof(argv[i + 1]);
    if (option == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
  }
  const Profile profile;
  fmt::print("One row, n = 1024, d = 128, one core, median of 5 (ms)\n\n");
  fmt::print(
      "| plan | target | double | double + statistics | double-double |\n|---|---|---|---|---|\n");
  const Case row_case = ParseCase(
      "attention hq=2 hkv=2 l=32 t=1024 d=128 q=bf16 k=bf16 v=bf16 out=bf16 mask=none "
      "data=gauss:1");
  const TensorMap row_inputs = GenerateInputs(row_case, profile);
  for (const std::string plan : {"plain_f32", "torch_cpu_flash_bf16"}) {
    for (const std::string_view target : EvaluatorTargets()) {
      SetEvaluatorTarget(target);
      const AttentionSource source(std::get<AttentionCase>(row_case), profile,
                                   ParsePlan("base=" + plan), row_inputs);
      TileRequest statistics;
      statistics.statistics = true;
      TileRequest dd;
      dd.precision = Precision::kDoubleDouble;
      fmt::print("| {} | {} | {:.3f} | {:.3f} | {:.3f} |\n", plan, target,
                 MedianRowMs(source, {}, 2), MedianRowMs(source, statistics, 2),
                 MedianRowMs(source, dd, 2));
    }
  }
  SetEvaluatorTarget("");
  const auto queries = static_cast<int64_t>(elements / 128 / 32) + 1;
  const Case judged_case =
      ParseCase(fmt::format("attention hq=32 hkv=8 l={} t=1024 d=128 q=bf16 k=bf16 v=bf16 out=bf16 "
                            "mask=none data=gauss:1",
                            queries));
  const TensorMap inputs = GenerateInputs(judged_case, profile);
  const AttentionSource source(std::get<AttentionCase>(judged_case), profile,
                               ParsePlan("base=torch_cpu_flash_bf16"), inputs);
  const MemorySink sink = RoundedAnswer(source);
  fmt::print(
      "\n| judged elements, n = 1024, d = 128, {} threads | seconds | verdict |\n|---|---|---|\n",
      threads);
  for (const Rule rule : {Rule::kBound, Rule::kNoise, Rule::kStatistics}) {
    JudgeOptions options;
    options.threads = threads;
    options.rule = rule;
    const double start = Now();
    const Verdict verdict = Judge(source, sink, options);
    fmt::print("| {}, rule {} | {:.1f} | {} |\n", verdict.outputs[0].counts.judged, Name(rule),
               Now() - start, Name(verdict.outcome));
  }
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
