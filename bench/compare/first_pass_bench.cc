// The first pass on one thread, per type, rule and kind of data, in bytes of both sides per second
// of CPU time. In cache: what the kernel computes. In memory: the same over 2 x 256 MiB.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "optimized/compare/first_pass.h"
#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"
#include "reference/spec/dtype.h"

namespace kvcheck {
namespace {

constexpr size_t kDrawnBytes = size_t{1} << 19;

struct BytePair {
  std::vector<std::byte> expected;
  std::vector<std::byte> got;
};

// A normal deviate (integers: times 20), and beside it itself, or, perturbed, a value moved by up
// to 0.9 of the tolerance.
void DrawElement(DType dtype, const PassRule& rule, bool is_perturbed, std::mt19937_64& random,
                 std::byte* want_to, std::byte* got_to) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> share(-0.9, 0.9);
  const ConvertRule saturate = {Rounding::kNearestEven, Overflow::kSaturate, false};
  const auto encode = [&](double x) {
    if (IsFloat(dtype)) return Encode(dtype, x, saturate);
    const double whole = std::trunc(std::fabs(x * 20));
    return Encode(dtype, dtype == DType::kBool ? (whole > 20 ? 1 : 0) : std::min(whole, 127.0));
  };
  const double x = normal(random);
  const uint64_t want = encode(x);
  const double value = Decode(dtype, want);
  const double spacing = IsFloat(dtype) ? SpacingAt(dtype, value) : 1;
  const double bound = rule.kind == PassRule::Kind::kAbsRel
                           ? rule.absolute + rule.relative * std::fabs(value)
                           : static_cast<double>(rule.ulps) * spacing;
  uint64_t got = is_perturbed ? encode(x + bound * share(random)) : want;
  if (std::fabs(Decode(dtype, got) - value) > bound) got = want;
  std::memcpy(want_to, &want, SizeInBytes(dtype));
  std::memcpy(got_to, &got, SizeInBytes(dtype));
}

// Drawn elements, repeated to this many bytes a side.
BytePair DrawPair(DType dtype, const PassRule& rule, bool is_perturbed, size_t bytes) {
  std::mt19937_64 random(1);
  BytePair pair;
  pair.expected.resize(bytes);
  pair.got.resize(bytes);
  const size_t size = SizeInBytes(dtype);
  for (size_t i = 0; i < kDrawnBytes; i += size) {
    DrawElement(dtype, rule, is_perturbed, random, &pair.expected[i], &pair.got[i]);
  }
  for (size_t i = kDrawnBytes; i < bytes; i += kDrawnBytes) {
    std::memcpy(&pair.expected[i], pair.expected.data(), kDrawnBytes);
    std::memcpy(&pair.got[i], pair.got.data(), kDrawnBytes);
  }
  return pair;
}

void Run(benchmark::State& state, DType dtype, PassRule rule, bool is_perturbed, size_t bytes) {
  // Under exact, the same data as under 4 spacings.
  PassRule drawn = rule;
  if (rule.kind == PassRule::Kind::kExact) drawn = {.kind = PassRule::Kind::kUlp, .ulps = 4};
  const BytePair pair = DrawPair(dtype, drawn, is_perturbed, bytes);
  for ([[maybe_unused]] const auto _ : state) {
    benchmark::DoNotOptimize(ComparePass(dtype, pair.expected, pair.got, rule));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(pair.expected.size() + pair.got.size()));
}

const bool kRegistered = [] {
  const PassRule rules[] = {
      {.kind = PassRule::Kind::kExact},
      {.kind = PassRule::Kind::kUlp, .ulps = 4},
      {.kind = PassRule::Kind::kAbsRel, .absolute = 1e-6, .relative = 1e-2},
  };
  const char* names[] = {"exact", "ulp", "abs_rel"};
  for (const size_t bytes : {kDrawnBytes, size_t{1} << 28}) {
    for (const DType dtype : AllDTypes()) {
      for (size_t i = 0; i < std::size(rules); ++i) {
        for (const bool is_perturbed : {false, true}) {
          const std::string name =
              fmt::format("{}/{}/{}/{}", bytes == kDrawnBytes ? "cache" : "memory",
                          ShortName(dtype), names[i], is_perturbed ? "perturbed" : "equal");
          benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
            Run(state, dtype, rules[i], is_perturbed, bytes);
          })->MinTime(0.1);
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace kvcheck
