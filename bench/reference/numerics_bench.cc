// Time per element of rounding, conversion and exact accumulation. Rounding is the inner step of
// simulated kernels, so it is timed twice: over an array, and in a chain where each result is the
// next input, as in a running sum.

#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/numerics/kulisch.h"

namespace kvcheck {
namespace {

constexpr int64_t kElements = 4096;

uint64_t NextRandom(uint64_t& state) {  // splitmix64
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Values of magnitude [2^-exponents, 1) and either sign.
std::vector<double> Values(uint64_t seed, uint64_t exponents) {
  std::vector<double> values;
  for (int64_t i = 0; i < kElements; ++i) {
    const uint64_t bits = NextRandom(seed);
    const uint64_t field = 1022 - NextRandom(seed) % exponents;
    values.push_back(std::bit_cast<double>((bits & 0x800fffffffffffffu) | field << 52));
  }
  return values;
}

void PerElement(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * kElements);
}

template <double (*kRound)(double)>
void Array(benchmark::State& state) {
  const std::vector<double> in = Values(1, 20);
  std::vector<double> out(in.size());
  for ([[maybe_unused]] auto _ : state) {
    for (size_t i = 0; i < in.size(); ++i) out[i] = kRound(in[i]);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  PerElement(state);
}
BENCHMARK(Array<RoundToF32>);
BENCHMARK(Array<RoundToBF16>);
BENCHMARK(Array<RoundToF16>);
BENCHMARK(Array<RoundTowardZeroToF32>);
BENCHMARK(Array<RoundTowardZeroToBF16>);
BENCHMARK(Array<RoundTowardZeroToF16>);

template <double (*kRound)(double)>
void RunningSum(benchmark::State& state) {
  const std::vector<double> in = Values(2, 20);
  for ([[maybe_unused]] auto _ : state) {
    double sum = 0;
    for (const double x : in) sum = kRound(sum + x);
    benchmark::DoNotOptimize(sum);
  }
  PerElement(state);
}
BENCHMARK(RunningSum<RoundToF32>);
BENCHMARK(RunningSum<RoundToBF16>);
BENCHMARK(RunningSum<RoundToF16>);

void EncodeByDefinition(benchmark::State& state) {
  const DType dtype = static_cast<DType>(state.range(0));
  const std::vector<double> in = Values(3, 20);
  for ([[maybe_unused]] auto _ : state) {
    for (const double x : in) benchmark::DoNotOptimize(Encode(dtype, x));
  }
  state.SetLabel(std::string(Name(dtype)));
  PerElement(state);
}
BENCHMARK(EncodeByDefinition)
    ->Arg(static_cast<int>(DType::kFloat16))
    ->Arg(static_cast<int>(DType::kFloat8E4M3FN));

void DecodeTensor(benchmark::State& state) {
  const DType dtype = static_cast<DType>(state.range(0));
  Tensor tensor(dtype, Shape::Unnamed({kElements}));
  EncodeFrom(Values(4, 20), dtype, tensor.bytes.data());
  std::vector<double> out(kElements);
  for ([[maybe_unused]] auto _ : state) {
    DecodeTo(tensor, 0, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(Name(dtype)));
  PerElement(state);
}
BENCHMARK(DecodeTensor)
    ->Arg(static_cast<int>(DType::kFloat32))
    ->Arg(static_cast<int>(DType::kBFloat16))
    ->Arg(static_cast<int>(DType::kFloat16))
    ->Arg(static_cast<int>(DType::kFloat8E4M3FN));

// Dot products of length 128, read out as a pair: operands of the type of the first argument,
// spread over as many binades as the second.
void KulischDot(benchmark::State& state) {
  const DType dtype = static_cast<DType>(state.range(0));
  constexpr size_t kLength = 128;
  std::vector<double> a = Values(5, static_cast<uint64_t>(state.range(1)));
  std::vector<double> b = Values(6, static_cast<uint64_t>(state.range(1)));
  RoundAll(a, dtype);
  RoundAll(b, dtype);
  for ([[maybe_unused]] auto _ : state) {
    for (size_t first = 0; first < a.size(); first += kLength) {
      KulischAccumulator sum;
      for (size_t i = first; i < first + kLength; ++i) sum.AddProduct(a[i], b[i]);
      benchmark::DoNotOptimize(sum.RoundToPair());
    }
  }
  state.SetLabel(std::string(Name(dtype)));
  PerElement(state);
}
BENCHMARK(KulischDot)
    ->Args({static_cast<int>(DType::kBFloat16), 8})
    ->Args({static_cast<int>(DType::kFloat32), 8})
    ->Args({static_cast<int>(DType::kFloat32), 120})
    ->Args({static_cast<int>(DType::kFloat64), 8})
    ->Args({static_cast<int>(DType::kFloat64), 1000});

}  // namespace
}  // namespace kvcheck
