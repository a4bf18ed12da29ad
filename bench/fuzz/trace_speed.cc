// What judging costs: operations a second of one core, every answer and every touched state judged,
// with the model as the implementation under test. Workloads: append, trim, filter, extend and
// extract on f32 caches of 2 heads x 8 channels; the same on codes of 4 bits at 64 channels; both
// with attend drawn. CPU time, so that a busy machine does not count.
//
//   trace_speed [repetitions, default 10]

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "reference/cache/model_cache.h"
#include "reference/data/generator.h"
#include "reference/spec/trace.h"
#include "reference/trace/run_trace.h"

namespace kvcheck {
namespace {

constexpr int kCases = 300;
constexpr int kDraws = 25;

CacheCase Draw(const std::string& setup, bool attends, uint64_t seed) {
  Generator random(seed, "trace_speed", 0);
  std::string text = setup + "; new A; new B; append B 2; new C rows=2; append C 2";
  for (int i = 0; i < kDraws; ++i) {
    const std::string slot(1, "ABC"[random.Below(3)]);
    switch (random.Below(attends ? 6 : 5)) {
      case 0:
      case 1:
        text += fmt::format("; append {} {}", slot, random.Between(1, 3));
        break;
      case 2:
        text += fmt::format("; trim {} {}", slot, random.Between(0, 2));
        break;
      case 3:
        text += fmt::format("; filter {} {}", slot, random.Below(2) == 0 ? "0" : "0,0");
        break;
      case 4:
        text += random.Below(2) == 0 ? "; extend C B; filter C 0,1"
                                     : fmt::format("; extract {} 0 -> B", slot);
        break;
      default:
        text += fmt::format("; append {} 1; attend {}", slot, slot);
    }
  }
  CacheCase c = ParseCacheCase(text);
  c.setup.data.seed = seed;
  return c;
}

int Measure(const std::string& name, const std::string& setup, bool attends, int repetitions) {
  std::vector<CacheCase> cases;
  for (uint64_t seed = 0; seed < kCases; ++seed) cases.push_back(Draw(setup, attends, seed));
  ModelFactory model;
  TraceRunner runner(&model);
  TraceCounts total;
  std::clock_t start = 0;
  for (int repetition = -1; repetition < repetitions; ++repetition) {
    if (repetition == 0) {  // after one round to warm up
      start = std::clock();
      total = {};
    }
    for (const CacheCase& c : cases) {
      const TraceResult result = runner.Run(c);
      if (result.outcome != Outcome::kPass) {
        fmt::print("{}: {}\n", name, result.reason);
        return 1;
      }
      total.operations += result.counts.operations;
      total.states += result.counts.states;
      total.tokens += result.counts.tokens;
      total.outputs += result.counts.outputs;
    }
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  fmt::print("| {} | {} | {} | {} | {} | {:.0f} | {:.2f} |\n", name, total.operations, total.states,
             total.tokens, total.outputs, static_cast<double>(total.operations) / seconds,
             1e6 * seconds / static_cast<double>(total.operations));
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  using kvcheck::Measure;
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 10;
  const std::string f32 = "cache k=f32 dk=8 hkv=2 hq=4 data=tokens:1";
  const std::string codes = "cache k=affine:4:g64:f16 x=f16 dk=64 hkv=2 hq=4 data=tokens:1";
  fmt::print("| workload | operations | states | tokens | outputs | operations/s | us each |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  int failed = Measure("f32, 2 heads x 8", f32, false, repetitions);
  failed += Measure("f32, 2 heads x 8, with attend", f32, true, repetitions);
  failed += Measure("4-bit codes, 2 heads x 64", codes, false, repetitions);
  failed += Measure("4-bit codes, 2 heads x 64, with attend", codes, true, repetitions);
  return failed == 0 ? 0 : 1;
}
