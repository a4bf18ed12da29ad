// Power of drawn traces: for every fault of the catalogue (tools/faults/cache_faults.h), how long
// one core draws and runs traces, unguided by the fault, until one fails; how short the shrunk
// trace is beside the shortest that is known for the fault; and whether the reason names the
// operation.
//
//   fault_power [seeds, default 5] [seconds after which a search is given up, 60]
//
// Seconds are processor time of one thread, and do not include shrinking, which has its own column.
// Exit status 1: a fault was not found, or a target of the last lines was missed.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "bench/timing.h"
#include "fuzz/draw_trace.h"
#include "fuzz/shrink_trace.h"
#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

constexpr int64_t kMaxShrinkRuns = 20000;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// As a failure is looked at: where it happens, not where it is first seen.
TraceOptions Closely() {
  TraceOptions options;
  options.every_slot = true;
  options.observe_each = true;
  return options;
}

struct Search {
  bool found = false;
  double seconds = 0;
  uint64_t traces = 0;
  double shrink_seconds = 0;
  ShrinkResult shrunk;
  TraceResult result;  // of the shrunk trace
  bool names_operation = false;
};

bool Names(std::string_view reason, std::string_view operations) {
  while (!operations.empty()) {
    const size_t end = std::min(operations.find(' '), operations.size());
    if (reason.find(fmt::format(", {} ", operations.substr(0, end))) != std::string_view::npos) {
      return true;
    }
    operations.remove_prefix(std::min(end + 1, operations.size()));
  }
  return false;
}

Search Find(const CacheFault& fault, uint64_t seed, double give_up) {
  ModelFactory factory(fault.rules(), std::string(fault.id));
  TraceRunner runner(&factory);
  TraceDrawer drawer;
  Search search;
  CacheCase c;
  const double start = ThreadSeconds();
  for (; !search.found && search.seconds < give_up; ++search.traces) {
    c = drawer.Draw(seed, search.traces);
    search.found = runner.Run(c).outcome == Outcome::kFail;
    search.seconds = ThreadSeconds() - start;
  }
  if (!search.found) return search;
  const std::string signature = runner.Run(c, Closely()).Signature(c);
  search.shrunk = ShrinkTrace(
      c,
      [&](const CacheCase& candidate) {
        const TraceResult result = runner.Run(candidate, Closely());
        return result.outcome == Outcome::kFail && result.Signature(candidate) == signature;
      },
      kMaxShrinkRuns);
  search.shrink_seconds = ThreadSeconds() - start - search.seconds;
  search.result = runner.Run(search.shrunk.c, Closely());
  search.names_operation = Names(search.result.reason, fault.operations);
  return search;
}

struct Total {
  std::vector<double> seconds;
  int64_t missed = 0;
  int64_t searches = 0;
  int64_t shrunk_operations = 0;
  int64_t most_operations = 0;
  int64_t beyond = 0;   // more than two operations longer than the shortest known trace
  int64_t shorter = 0;  // than the shortest known trace
  int64_t unnamed = 0;
  double worst = 0;
  double worst_shrink = 0;
};

void Measure(const CacheFault& fault, uint64_t seeds, double give_up, Total* total,
             std::vector<std::string>* notes) {
  const auto known = std::ssize(ParseCacheCase(fault.smallest).ops);
  std::vector<double> seconds, traces;
  int64_t longest = 0;
  int64_t runs = 0;
  double shrink_seconds = 0;
  uint64_t found = 0;
  Search shown;
  bool named = true;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Search search = Find(fault, seed, give_up);
    seconds.push_back(search.seconds);
    traces.push_back(static_cast<double>(search.traces));
    total->seconds.push_back(search.seconds);
    total->worst = std::max(total->worst, search.seconds);
    ++total->searches;
    if (!search.found) {
      ++total->missed;
      continue;
    }
    ++found;
    const auto operations = std::ssize(search.shrunk.c.ops);
    total->shrunk_operations += operations;
    total->most_operations = std::max<int64_t>(total->most_operations, operations);
    total->beyond += operations > known + 2 ? 1 : 0;
    total->unnamed += search.names_operation ? 0 : 1;
    total->worst_shrink = std::max(total->worst_shrink, search.shrink_seconds);
    runs = std::max(runs, search.shrunk.runs);
    shrink_seconds = std::max(shrink_seconds, search.shrink_seconds);
    // The longest is shown: it is the one to improve. Of the first fault without its name, that.
    if (named && (operations > longest || !search.names_operation)) shown = search;
    named = named && search.names_operation;
    longest = std::max<int64_t>(longest, operations);
    total->shorter += operations < known ? 1 : 0;
    if (!search.names_operation) {
      notes->push_back(fmt::format("{}, operation not named: {}", fault.id, search.result.reason));
    }
    if (operations != known) {
      notes->push_back(fmt::format("{}, {} operations instead of {}: {}", fault.id, operations,
                                   known, Print(search.shrunk.c)));
    }
  }
  fmt::print("| {} | {}/{} | {:.4f} | {:.4f} | {:.0f} | {} | {} | {} | {:.3f} | {} | {} |\n",
             fault.id, found, seeds, Quantile(seconds, 0.5),
             *std::max_element(seconds.begin(), seconds.end()), Quantile(traces, 0.5), known,
             longest, runs, shrink_seconds, named ? "yes" : "no", shown.result.reason);
}

int MeasureAll(uint64_t seeds, double give_up) {
  fmt::print(
      "| fault | found | median s | worst s | median traces | shortest known | longest shrunk | "
      "most "
      "runs to shrink | worst s to shrink | names the operation | reason of the longest |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  Total total;
  std::vector<std::string> notes;
  for (const CacheFault& fault : CacheFaults()) Measure(fault, seeds, give_up, &total, &notes);
  fmt::print("\nNot shrunk to the length of the shortest known trace, or not named:\n");
  for (const std::string& note : notes) fmt::print("* {}\n", note);
  const int64_t found = total.searches - total.missed;
  const double median = Quantile(total.seconds, 0.5);
  const double mean =
      found == 0 ? 0 : static_cast<double>(total.shrunk_operations) / static_cast<double>(found);
  fmt::print(
      "\n{} faults x {} seeds: {} of {} found, median {:.4f} s, worst {:.3f} s; shrunk to {:.2f} "
      "operations on average, {} at most, {} times more than two beyond the shortest known trace "
      "and {} times below it, in {:.2f} s at most; the reason names the operation {} of {} times\n",
      CacheFaults().size(), seeds, found, total.searches, median, total.worst, mean,
      total.most_operations, total.beyond, total.shorter, total.worst_shrink, found - total.unnamed,
      found);
  const bool reached = total.missed == 0 && median < 2 && total.worst < 10 && mean <= 5 &&
                       total.beyond == 0 && total.unnamed == 0;
  fmt::print(
      "targets (all found, median < 2 s, worst < 10 s, at most two beyond the shortest, mean "
      "<= 5, operation named): {}\n",
      reached ? "reached" : "MISSED");
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  const uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 5;
  const double give_up = argc > 2 ? std::strtod(argv[2], nullptr) : 60;
  return kvcheck::MeasureAll(std::max<uint64_t>(1, seeds), give_up);
}
