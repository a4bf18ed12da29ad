// What judging stored tensors costs: ns of processor time per element of Judge on a
// RuledTensorSource, both sides in memory, by type, rule and what is observed; with two threads
// also of elapsed time. It is the second pass of `kvcheck compare`, over tensors that the first
// pass could not certify, and all of `--stats full`.
//
//   judge_cost [--elements 16777216] [--repeat 3]

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

#include "bench/timing.h"
#include "reference/formats/stored_codec_source.h"
#include "reference/judge/tensor_source.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"

namespace kvcheck {
namespace {

// Of all threads.
double ProcessorTime() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

// Values in [-1, 1), a function of i alone.
double Hashed(uint64_t i) {
  uint64_t x = i + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
  return static_cast<double>(static_cast<int64_t>(x >> 11)) * 0x1p-52 - 1;
}

enum class Change { kNone, kWithin, kBeyond };

struct Row {
  DType dtype;
  const char* rule;
  Change change;
  const char* what;
  bool matrix;  // rows of 128, or one long vector
};

// A relative change of up to `step` in every element.
MemorySink Stored(const Row& row, int64_t elements, double step) {
  const Shape shape =
      row.matrix ? Shape{{"T", elements / 128}, {"Dv", 128}} : Shape::Unnamed({elements});
  Tensor tensor(row.dtype, shape);
  std::vector<double> values(static_cast<size_t>(shape.ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Hashed(i) * (1 + step * Hashed(i + values.size()));
    if (!IsFloat(row.dtype)) values[i] = std::floor(values[i] * 100);
  }
  RoundAll(values, row.dtype);
  EncodeFrom(values, row.dtype, tensor.bytes.data());
  return MemorySink(TensorMap{{"x", std::move(tensor)}});
}

// Judges with one thread and with two.
Outcome PrintTimes(const ExpectedSource& source, const ObservedSource& observed, int repeat) {
  Outcome outcome = Outcome::kPass;
  for (const int threads : {1, 2}) {
    JudgeOptions options;
    options.threads = threads;
    options.special = kTensorPolicy;
    std::vector<double> elapsed;
    std::vector<double> processor;
    for (int k = 0; k < repeat; ++k) {
      const double start = Now();
      const double used = ProcessorTime();
      outcome = Judge(source, observed, options).outcome;
      processor.push_back(ProcessorTime() - used);
      elapsed.push_back(Now() - start);
    }
    const double scale = 1e9 / static_cast<double>(source.Outputs()[0].shape.ElementCount());
    fmt::print(" {:.1f} |", Quantile(processor, 0.5) * scale);
    if (threads > 1) fmt::print(" {:.1f} |", Quantile(elapsed, 0.5) * scale);
  }
  return outcome;
}

int Main(int argc, char** argv) {
  int64_t elements = int64_t{1} << 24;
  int repeat = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--elements") elements = std::max(int64_t{128}, std::atol(argv[i + 1]));
    if (option == "--repeat") repeat = std::max(1, std::atoi(argv[i + 1]));
  }
  const std::vector<Row> rows = {
      {DType::kFloat32, "exact", Change::kNone, "equal", true},
      {DType::kFloat32, "abs:2^-10,rel:2^-8", Change::kWithin, "every element differs", true},
      {DType::kFloat32, "abs:2^-10,rel:2^-8", Change::kWithin, "every element differs", false},
      {DType::kFloat32, "ulp:65536", Change::kWithin, "every element differs", true},
      {DType::kFloat32, "rel:2^-8", Change::kBeyond, "half of the elements fail", true},
      {DType::kFloat32, "exact", Change::kWithin, "every element fails", true},
      {DType::kBFloat16, "abs:2^-10,rel:2^-6", Change::kWithin, "every element differs", true},
      {DType::kFloat16, "abs:2^-10,rel:2^-8", Change::kWithin, "every element differs", true},
      {DType::kFloat64, "abs:2^-10,rel:2^-8", Change::kWithin, "every element differs", true},
      {DType::kInt32, "abs:1", Change::kNone, "equal", true},
  };
  fmt::print("ns per element of {} elements, median of {}\n\n", elements, repeat);
  fmt::print(
      "| type | shape | rule | observed | 1 thread, processor | 2 threads, processor | 2 threads, "
      "elapsed | verdict |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    const MemorySink expected = Stored(row, elements, 0);
    const double step = row.change == Change::kNone     ? 0
                        : row.change == Change::kWithin ? 0x1p-9
                                                        : 0x1p-7;
    const MemorySink observed = Stored(row, elements, step);
    const RuledTensorSource source(expected, {{"x", ParseToleranceRule(WholeLine(row.rule))}});
    fmt::print("| {} | {} | {} | {} |", ShortName(row.dtype), row.matrix ? "rows of 128" : "vector",
               row.rule, row.what);
    const Outcome outcome = PrintTimes(source, observed, repeat);
    fmt::print(" {} |\n", Name(outcome));
  }
  for (const char* rule : {"codec:affine:4:g64", "codec:affine:4:g64,encode=mlx_cpu",
                           "codec:f8e4m3fn", "codec:bf16"}) {
    const Row row = {DType::kFloat32, rule, Change::kNone, "equal", true};
    const MemorySink original = Stored(row, elements / 8, 0);
    const auto source =
        MakeDequantisedSource(std::get<CodecRule>(ParseToleranceRule(WholeLine(rule))), original,
                              "x", "x", DType::kFloat32);
    fmt::print("| f32 | rows of 128 | {} | equal |", rule);
    fmt::print(" {} |\n", Name(PrintTimes(*source, original, repeat)));
  }
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  try {
    return kvcheck::Main(argc, argv);
  } catch (const kvcheck::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
