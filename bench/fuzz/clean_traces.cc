// No false alarm, and no failure: drawn traces over every layout, every format, single caches and
// batches, run on an implementation beside the model of the contract, every step judged. Prints
// what was run, how often every probe was reached, and every failure with the line that replays it.
//
//   clean_traces [traces, default 100000] [seed, 1] [optimized|model] [threads, 2]
//
// Exit status 1: a trace failed, could not be trusted or was declined, or a probe was not reached.

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fuzz/draw_trace.h"
#include "optimized/cache/cache_factory.h"
#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"
#include "reference/trace/trace_space.h"

namespace kvcheck {
namespace {

constexpr uint64_t kBlock = 1000;  // traces that a thread takes at once
constexpr size_t kMostShown = 20;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cell {
  int64_t traces = 0;
  int64_t operations = 0;
};

struct Tally {
  Cell all;
  std::array<Cell, 10> layouts;  // LayoutVariants() x {single, batch}
  std::map<std::string, Cell> formats;
  TraceCounts counts;
  ProbeCounts probes{};
  std::map<std::string, int64_t> untrusted;  // reason without its numbers
  std::vector<std::string> failures;
  int64_t failed = 0;
  double draw_seconds = 0;
  double seconds = 0;

  void Add(const Tally& other) {
    const auto add = [](const Cell& from, Cell* to) {
      to->traces += from.traces;
      to->operations += from.operations;
    };
    add(other.all, &all);
    for (size_t i = 0; i < layouts.size(); ++i) add(other.layouts[i], &layouts[i]);
    for (const auto& [name, cell] : other.formats) add(cell, &formats[name]);
    for (const auto& [reason, count] : other.untrusted) untrusted[reason] += count;
    for (size_t i = 0; i < probes.size(); ++i) probes[i] += other.probes[i];
    failures.insert(failures.end(), other.failures.begin(), other.failures.end());
    failed += other.failed;
    draw_seconds += other.draw_seconds;
    seconds += other.seconds;
    Count(other.counts);
  }
  void Count(const TraceCounts& from) {
    counts.operations += from.operations;
    counts.idle += from.idle;
    counts.refusals += from.refusals;
    counts.states += from.states;
    counts.outputs += from.outputs;
    counts.tokens += from.tokens;
    for (size_t i = 0; i < counts.by_kind.size(); ++i) counts.by_kind[i] += from.by_kind[i];
  }
};

// "4-bit codes", "f32": the rows of the table of formats.
std::string FormatClass(const KvFormat& format) {
  return IsPlain(format) || KindOf(format) == Print(format)
             ? Print(format)
             : fmt::format("{}:g{}", KindOf(format), BlockOf(format));
}

// A batch: some cache of the trace starts with another number of rows than one, or gets it.
bool IsSingle(const CacheCase& c) {
  for (const CacheOp& op : c.ops) {
    if (op.kind == CacheOpKind::kNew && op.count != 1) return false;
    if (op.kind == CacheOpKind::kMerge && op.operands.size() != 1) return false;
    if (op.kind == CacheOpKind::kExtend) return false;
  }
  return true;
}

std::string WithoutNumbers(const std::string& text) {
  std::string without;
  for (const char c : text) {
    if (c >= '0' && c <= '9') continue;
    without += c;
  }
  const size_t colon = without.find(": ");
  return colon == std::string::npos ? without : without.substr(colon + 2);
}

void RunBlock(TraceDrawer* drawer, TraceRunner* runner, uint64_t seed, uint64_t begin, uint64_t end,
              Tally* tally) {
  for (uint64_t index = begin; index < end; ++index) {
    const CacheCase c = drawer->Draw(seed, index);
    const TraceResult result = runner->Run(c);
    const auto add = [&](Cell* cell) {
      ++cell->traces;
      cell->operations += result.counts.operations;
    };
    add(&tally->all);
    const auto layout = static_cast<size_t>(LayoutVariantOf(c.setup.layout));
    add(&tally->layouts[2 * layout + (IsSingle(c) ? 0 : 1)]);
    add(&tally->formats[c.setup.k == c.setup.v ? FormatClass(c.setup.k) : "K and V differ"]);
    tally->Count(result.counts);
    for (size_t i = 0; i < result.probes.size(); ++i) tally->probes[i] += result.probes[i];
    if (result.outcome == Outcome::kPass) continue;
    if (result.outcome == Outcome::kFail) {
      ++tally->failed;
    } else {
      ++tally
            ->untrusted[fmt::format("{}: {}", Name(result.outcome), WithoutNumbers(result.reason))];
    }
    if (tally->failures.size() < kMostShown) {
      tally->failures.push_back(
          fmt::format("{} {}\n  kvcheck run '{}'", Name(result.outcome), result.reason, Print(c)));
    }
  }
}

Tally RunThread(const std::string& implementation, uint64_t seed, uint64_t traces,
                std::atomic<uint64_t>* next) {
  std::unique_ptr<CacheFactory> factory;
  if (implementation == "model") {
    factory = std::make_unique<ModelFactory>();
  } else {
    factory = std::make_unique<optimized::OptimizedCacheFactory>();
  }
  TraceRunner runner(factory.get());
  TraceDrawer drawer;
  Tally tally;
  const double start = ThreadSeconds();
  for (uint64_t begin = next->fetch_add(kBlock); begin < traces; begin = next->fetch_add(kBlock)) {
    RunBlock(&drawer, &runner, seed, begin, std::min(traces, begin + kBlock), &tally);
  }
  tally.seconds = ThreadSeconds() - start;
  return tally;
}

// Processor seconds that drawing alone takes, per trace.
double DrawSeconds(uint64_t seed) {
  TraceDrawer drawer;
  size_t operations = 0;
  const double start = ThreadSeconds();
  constexpr uint64_t kTraces = 20000;
  for (uint64_t index = 0; index < kTraces; ++index) {
    operations += drawer.Draw(seed, index).ops.size();
  }
  return operations == 0 ? 0 : (ThreadSeconds() - start) / kTraces;
}

int Survey(uint64_t traces, uint64_t seed, const std::string& implementation, unsigned threads) {
  std::atomic<uint64_t> next = 0;
  std::vector<Tally> tallies(threads);
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> pool;
    for (Tally& tally : tallies) {
      pool.emplace_back([&] { tally = RunThread(implementation, seed, traces, &next); });
    }
  }
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Tally total;
  for (const Tally& tally : tallies) total.Add(tally);

  fmt::print("| layout | single: traces | operations | batch: traces | operations |\n");
  fmt::print("|---|---|---|---|---|\n");
  for (size_t i = 0; i < LayoutVariants().size(); ++i) {
    const Cell& single = total.layouts[2 * i];
    const Cell& batch = total.layouts[2 * i + 1];
    fmt::print("| {} | {} | {} | {} | {} |\n", LayoutVariants()[i], single.traces,
               single.operations, batch.traces, batch.operations);
  }
  fmt::print("\n| K and V | traces | operations |\n|---|---|---|\n");
  for (const auto& [name, cell] : total.formats) {
    fmt::print("| {} | {} | {} |\n", name, cell.traces, cell.operations);
  }
  fmt::print("\n| operation | carried out or refused |\n|---|---|\n");
  for (size_t i = 0; i < total.counts.by_kind.size(); ++i) {
    fmt::print("| {} | {} |\n", Name(static_cast<CacheOpKind>(i)), total.counts.by_kind[i]);
  }
  int missed = 0;
  fmt::print("\n| probe | reached | what |\n|---|---|---|\n");
  for (int i = 0; i < kProbes; ++i) {
    const int64_t count = total.probes[static_cast<size_t>(i)];
    missed += count == 0 ? 1 : 0;
    fmt::print("| {} | {} | {} |\n", Name(static_cast<Probe>(i)), count,
               Description(static_cast<Probe>(i)));
  }
  fmt::print(
      "\n| traces | operations | refused | states | tokens | elements of attention | failures "
      "| not judged | probes reached |\n|---|---|---|---|---|---|---|---|---|\n");
  int64_t untrusted = 0;
  for (const auto& [reason, count] : total.untrusted) untrusted += count;
  fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} of {} |\n", total.all.traces,
             total.counts.operations, total.counts.refusals, total.counts.states,
             total.counts.tokens, total.counts.outputs, total.failed, untrusted, kProbes - missed,
             kProbes);
  fmt::print(
      "\n{} on {} threads: {:.1f} s, {:.0f} traces/s and {:.0f} operations/s; {:.0f} "
      "operations/s of a core by processor time, of which drawing takes {:.1f} %\n",
      implementation, threads, elapsed, static_cast<double>(total.all.traces) / elapsed,
      static_cast<double>(total.counts.operations) / elapsed,
      static_cast<double>(total.counts.operations) / total.seconds,
      100 * DrawSeconds(seed) * static_cast<double>(total.all.traces) / total.seconds);
  for (const auto& [reason, count] : total.untrusted) fmt::print("{} x {}\n", count, reason);
  for (const std::string& failure : total.failures) fmt::print("{}\n", failure);
  return total.failed + untrusted + missed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  const auto number = [&](int i, uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  const std::string implementation = argc > 3 ? argv[3] : "optimized";
  if (implementation != "optimized" && implementation != "model") {
    fmt::print(stderr, "clean_traces [traces] [seed] [optimized|model] [threads]\n");
    return 2;
  }
  return kvcheck::Survey(number(1, 100000), number(2, 1), implementation,
                         static_cast<unsigned>(std::max<uint64_t>(1, number(4, 2))));
}
