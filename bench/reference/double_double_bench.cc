// Time per element of double-double arithmetic and of the elementary functions: scalar (one call
// per element), and in loops that the compiler vectorises, for the baseline and for x86-64-v3. The
// loops stand in double_double_loops.cc.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "double_double_loops.h"
#include "reference/numerics/exp.h"
#include "reference/numerics/oracle.h"

namespace kvcheck {
namespace {

constexpr size_t kCount = 1024;

struct Data {
  std::vector<double> x, x_lo, y, y_lo, out, out_lo;
  Data(double low, double high) : out(kCount), out_lo(kCount) {
    std::mt19937_64 bits(1);
    const auto uniform = [&] { return static_cast<double>(bits() >> 11) * 0x1p-53; };
    for (size_t i = 0; i < kCount; ++i) {
      x.push_back(low + (high - low) * uniform());
      x_lo.push_back(x.back() * 0x1p-54 * uniform());
      y.push_back(0.5 + uniform());
      y_lo.push_back(y.back() * 0x1p-54 * uniform());
    }
  }
};

void CountElements(benchmark::State& state) {
  state.counters["per_element"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(kCount),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

template <class Function>
void ScalarDouble(benchmark::State& state, Function function) {
  Data data(-50.0, 0.0);
  for ([[maybe_unused]] auto _ : state) {
    for (size_t i = 0; i < kCount; ++i) data.out[i] = function(data.x[i]);
    benchmark::ClobberMemory();
  }
  CountElements(state);
}

template <class Function>
void ScalarPair(benchmark::State& state, Function function, double low, double high) {
  Data data(low, high);
  for ([[maybe_unused]] auto _ : state) {
    for (size_t i = 0; i < kCount; ++i) {
      const DoubleDouble result = function(DoubleDouble{data.x[i], data.x_lo[i]});
      data.out[i] = result.hi;
      data.out_lo[i] = result.lo;
    }
    benchmark::ClobberMemory();
  }
  CountElements(state);
}

BENCHMARK_CAPTURE(ScalarDouble, exp, [](double x) { return ExpDouble(x); });
BENCHMARK_CAPTURE(ScalarDouble, tanh, [](double x) { return TanhDouble(x); });
BENCHMARK_CAPTURE(ScalarPair, exp, [](DoubleDouble x) { return ExpDD(x); }, -50.0, 0.0);
BENCHMARK_CAPTURE(ScalarPair, tanh, [](DoubleDouble x) { return TanhDD(x); }, -3.0, 3.0);
BENCHMARK_CAPTURE(ScalarPair, log, [](DoubleDouble x) { return LogDD(x); }, 1.0, 1000.0);

template <class Number>
void OracleExp(benchmark::State& state) {
  double x = -3.75;
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(Exp(Number(x)));
  state.counters["per_call"] =
      benchmark::Counter(static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(OracleExp<Oracle50>);
BENCHMARK(OracleExp<Oracle100>);

void Loop(benchmark::State& state, const BenchLoops& set, BenchLoop loop, double low, double high) {
#ifdef __x86_64__
  if (set.fused && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) {
    state.SkipWithError("not supported by this processor");
    return;
  }
#endif
  Data data(low, high);
  const LoopArguments arguments = {
      data.x.data(),   data.x_lo.data(),   data.y.data(), data.y_lo.data(),
      data.out.data(), data.out_lo.data(), kCount};
  for ([[maybe_unused]] auto _ : state) {
    loop(arguments);
    benchmark::ClobberMemory();
  }
  CountElements(state);
}

void Register(const BenchLoops& set) {
  const auto add = [&](const char* name, BenchLoop loop, double low, double high) {
    benchmark::RegisterBenchmark(
        (std::string(set.name) + "/" + name).c_str(),
        [=, &set](benchmark::State& state) { Loop(state, set, loop, low, high); });
  };
  add("exp", set.exp, -50.0, 0.0);
  add("tanh", set.tanh, -3.0, 3.0);
  add("exp_dd", set.exp_dd, -50.0, 0.0);
  add("tanh_dd", set.tanh_dd, -3.0, 3.0);
  add("log_dd", set.log_dd, 1.0, 1000.0);
  add("add", set.add, 0.5, 2.0);
  add("multiply", set.multiply, 0.5, 2.0);
  add("divide", set.divide, 0.5, 2.0);
  add("dot_step", set.dot_step, 0.5, 2.0);
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  kvcheck::Register(kvcheck::BaselineBenchLoops());
#ifdef __x86_64__
  kvcheck::Register(kvcheck::X86V3BenchLoops());
#endif
  benchmark::RunSpecifiedBenchmarks();
}
