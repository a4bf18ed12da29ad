// How many operations of traces are carried out and judged per second of one core: the optimized
// caches beside the model, the whole state judged after every operation.
//
//   judged_operations [seconds per line]
//
// Time is processor time of the one thread, so that other work on the machine does not count; the
// traces are drawn before.

#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "optimized/cache/cache_factory.h"
#include "reference/data/generator.h"
#include "reference/trace/run_trace.h"

namespace kvcheck {
namespace {

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Workload {
  std::string name;
  CacheSetup setup;
  uint64_t attend_one_in = 0;  // operations; 0: never
};

// append, trim, filter, extract and extend in equal parts, on two slots, after two `new`; batches
// are cut down to 3 rows before they grow beyond 6.
CacheCase Draw(const Workload& workload, uint64_t seed) {
  Generator random(seed, "judged_operations", 0);
  CacheCase c;
  c.setup = workload.setup;
  c.setup.data = {"tokens", seed, ""};
  int64_t rows[2];
  for (int slot = 0; slot < 2; ++slot) {
    CacheOp op;
    op.kind = CacheOpKind::kNew;
    op.slot = slot;
    op.count = rows[slot] = random.Between(1, 3);
    for (int64_t b = 0; b < op.count; ++b) op.numbers.push_back(random.Between(0, 2));
    c.ops.push_back(op);
  }
  for (int i = 0; i < 40; ++i) {
    CacheOp op;
    op.slot = static_cast<int>(random.Below(2));
    op.target = 1 - op.slot;
    int64_t& here = rows[op.slot];
    const bool attends = workload.attend_one_in > 0 && random.Below(workload.attend_one_in) == 0;
    switch (attends ? 5 : random.Below(5)) {
      case 0:
        op.kind = CacheOpKind::kAppend;
        op.count = random.Between(1, 4);
        break;
      case 1:
        op.kind = CacheOpKind::kTrim;
        op.count = random.Between(0, 3);
        break;
      case 2:
        op.kind = CacheOpKind::kExtract;
        op.count = random.Between(0, here - 1);
        rows[op.target] = 1;
        break;
      case 3:
        op.kind = CacheOpKind::kExtend;
        if (here + rows[op.target] <= 6) {
          here += rows[op.target];
          break;
        }
        [[fallthrough]];
      case 4:
        op.kind = CacheOpKind::kFilter;
        op.numbers.clear();
        for (int64_t n = random.Between(1, 3); n > 0; --n) {
          op.numbers.push_back(random.Between(0, here - 1));
        }
        here = static_cast<int64_t>(op.numbers.size());
        break;
      default: {
        CacheOp append;
        append.kind = CacheOpKind::kAppend;
        append.slot = op.slot;
        append.count = random.Between(1, 3);
        c.ops.push_back(append);
        op.kind = CacheOpKind::kAttend;
        break;
      }
    }
    c.ops.push_back(op);
  }
  return c;
}

void Measure(const Workload& workload, double seconds) {
  constexpr uint64_t kCases = 500;
  std::vector<CacheCase> cases;
  for (uint64_t seed = 0; seed < kCases; ++seed) cases.push_back(Draw(workload, seed));
  optimized::OptimizedCacheFactory factory;
  TraceRunner runner(&factory);
  int64_t operations = 0;
  int64_t states = 0;
  int64_t outputs = 0;
  double elapsed = 0;
  // The first turn warms up.
  for (int turn = 0; turn < 2 || elapsed < seconds; ++turn) {
    const double start = ProcessorSeconds();
    for (const CacheCase& c : cases) {
      const TraceResult result = runner.Run(c);
      if (result.outcome != Outcome::kPass) {
        fmt::print("{}\n{}\n", Print(c), result.reason);
        std::exit(1);
      }
      if (turn == 0) continue;
      operations += result.counts.operations;
      states += result.counts.states;
      outputs += result.counts.outputs;
    }
    if (turn > 0) elapsed += ProcessorSeconds() - start;
  }
  fmt::print("| {} | {:.0f} | {:.0f} | {} |\n", workload.name,
             static_cast<double>(operations) / elapsed, static_cast<double>(states) / elapsed,
             outputs == 0 ? std::string("none")
                          : fmt::format("{:.2g}/s", static_cast<double>(outputs) / elapsed));
}

int Main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const auto setup = [](const char* text) {
    return ParseCacheCase(std::string("cache ") + text + " data=tokens:0").setup;
  };
  fmt::print("| workload | judged operations/s | judged states/s | elements of attention |\n");
  fmt::print("|---|---|---|---|\n");
  Measure({"f32, 2 heads x 8, linear", setup("k=f32 hkv=2 dk=8"), 0}, seconds);
  Measure({"f32, 2 heads x 8, ring 6, keep 2", setup("layout=ring:w=6:keep=2 k=f32 hkv=2 dk=8"), 0},
          seconds);
  Measure({"f32, 2 heads x 8, chunk 4", setup("layout=chunk:c=4 k=f32 hkv=2 dk=8"), 0}, seconds);
  Measure({"affine:4:g64:f16, 2 heads x 64", setup("k=affine:4:g64:f16 x=f16 hkv=2 dk=64"), 0},
          seconds);
  Measure({"affine:4:g64:f16, 2 heads x 64, 1 in 20 attends",
           setup("k=affine:4:g64:f16 x=f16 hkv=2 dk=64"), 20},
          seconds);
  Measure({"affine:4:g64:f16, 2 heads x 64, 1 in 6 attends",
           setup("k=affine:4:g64:f16 x=f16 hkv=2 dk=64"), 6},
          seconds);
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
