// The optimized attention against the bound that its own plans give: every format of K and V, every
// kind of mask, lengths around vectors, blocks and ranges, every regime of data, both arithmetics,
// judged until a number of elements is reached. Prints a line per kernel: what it reads, how many
// queries it takes at once. A violation prints the case that repeats it.
//
//   clean_attention [--elements 1e8] [--seed 1] [--threads N] [--rule statistics]
//
// With statistics, the tests for a fault that no single element shows (bound.md, section 4) run on
// every case, and count where one is over its limit; they cost most of the time.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "optimized/attention/attention_implementation.h"
#include "reference/data/attention_regime.h"
#include "reference/judge/judge.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {
namespace {

constexpr const char* kMasks[] = {
    "none",
    "causal_bottom_right",
    "causal_top_left",
    "causal_bottom_right+window:7",
    "window:70",
    "left_pad:0,1",
    "causal_bottom_right+window:65+left_pad:1,0",
    "bool:T",
    "bool:LT",
    "bool:BHLT",
    "causal_bottom_right+bool:B1LT",
    "additive:B11T:f32",
    "additive:BHLT:f16",
    "causal_top_left+additive:LT:bf16",
    "left_pad:1,0+additive:B1LT:f64",
};
constexpr const char* kExtras[] = {
    "",
    "sinks=f32 lse=natural ",
    "softcap=5 ",
    "alibi=yes lse=base2 ",
    "sinks=bf16 softcap=30 alibi=yes ",
};

struct Drawn {
  std::string text;
  std::string regime;
  std::vector<std::string> counts_as;
};

class Draw {
 public:
  explicit Draw(uint64_t index) : random_(static_cast<uint32_t>(index * 2654435761u + 1)) {}

  template <typename T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  template <size_t kSize>
  std::string_view Of(const char* const (&values)[kSize]) {
    return values[random_() % kSize];
  }
  std::string Format() {
    if (random_() % 2 == 0) return Of<const char*>({"f32", "f16", "bf16", "f8e4m3fn", "f8e5m2"});
    return fmt::format("affine:{}:g{}:{}", Of({2, 3, 4, 4, 5, 6, 8, 8}), Of({32, 64, 128}),
                       Of<const char*>({"f32", "f16", "bf16"}));
  }
  int Dim(std::string_view format) {
    if (format.starts_with("affine")) return Of({128, 256});
    return Of({1, 2, 15, 16, 17, 64, 80, 127, 128, 129});
  }

  Drawn Case(uint64_t index) {
    const std::string k = Format();
    const std::string v = Format();
    const int queries = Of({1, 1, 1, 1, 1, 1, 2, 15, 16, 17, 63, 64, 65, 129});
    // Many small cases show more than few large ones.
    const int group = queries < 15 ? Of({1, 2, 4, 5, 8}) : Of({1, 2});
    const int kv_heads = queries < 15 ? Of({1, 2}) : 1;
    const int kv_len = random_() % 12 == 0 ? Of({2047, 2048, 2049, 3969, 4161})
                                           : Of({1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129});
    const std::string_view regime = AttentionRegimes()[random_() % kGeneralRegimes];
    const std::string_view mask = Of(kMasks);
    Drawn drawn;
    drawn.text = fmt::format(
        "attention b=2 hq={} hkv={} l={} t={} d={} dv={} q={} k={} v={} out=f32 mask={} "
        "{}data={}:{}",
        kv_heads * group, kv_heads, queries, kv_len, Dim(k), Dim(v),
        Of<const char*>({"f32", "f32", "f16", "bf16"}), k, v, mask, Of(kExtras), regime, index);
    drawn.regime = regime;
    const int rows = group * queries;
    const char* taken = rows == 1 ? "1 query" : rows < 16 ? "2 to 15 queries" : "from 16 queries";
    drawn.counts_as = {
        fmt::format("q.k {}, {}", Kind(k), taken),
        fmt::format("P.V {}, {}", Kind(v), taken),
        fmt::format("tokens {}", kv_len <= 64     ? "to 64"
                                 : kv_len <= 2048 ? "65 to 2048"
                                 : kv_len <= 3968 ? "2049 to 3968"
                                                  : "from 3969"),
        fmt::format("regime {}", regime),
        fmt::format("mask {}", mask),
        fmt::format("{}", queries == 1 ? "decode" : "prefill"),
    };
    return drawn;
  }

 private:
  static std::string Kind(const std::string& format) {
    return format.starts_with("affine") ? format.substr(0, 8) : format;
  }

  std::mt19937 random_;
};

struct Count {
  int64_t cases = 0;
  int64_t elements = 0;
  int64_t violations = 0;
  double largest = 0;
  int64_t tests = 0;
  int64_t over = 0;
  double largest_z = 0;  // over its limit
  double largest_q = 0;

  void Add(const Count& other) {
    cases += other.cases;
    elements += other.elements;
    violations += other.violations;
    largest = std::max(largest, other.largest);
    tests += other.tests;
    over += other.over;
    largest_z = std::max(largest_z, other.largest_z);
    largest_q = std::max(largest_q, other.largest_q);
  }
};

Count CountOf(const Verdict& verdict) {
  Count count;
  count.cases = 1;
  for (const OutputVerdict& output : verdict.outputs) {
    count.elements += output.counts.judged;
    count.violations += output.counts.failed;
    if (output.worst) count.largest = std::max(count.largest, output.worst->ratio);
    if (!output.statistics) continue;
    for (const DirectionStatistic& one : output.statistics->directions) {
      ++count.tests;
      count.over += one.over ? 1 : 0;
      count.largest_z = std::max(count.largest_z, one.z / one.limit);
    }
    for (const QuadraticStatistic& one : output.statistics->quadratics) {
      ++count.tests;
      count.over += one.over ? 1 : 0;
      count.largest_q = std::max(count.largest_q, one.q / one.limit);
    }
  }
  return count;
}

using Table = std::map<std::string, Count>;  // by what counts

void PrintTables(const Table (&tables)[2]) {
  fmt::print(
      "| what | native: cases | elements | violations | max err/bound | portable: cases | elements "
      "| violations | max err/bound |\n|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [what, native] : tables[0]) {
    const auto at = tables[1].find(what);
    const Count portable = at == tables[1].end() ? Count() : at->second;
    fmt::print("| {} | {} | {} | {} | {:.3f} | {} | {} | {} | {:.3f} |\n", what, native.cases,
               native.elements, native.violations, native.largest, portable.cases,
               portable.elements, portable.violations, portable.largest);
  }
}

int Main(int argc, char** argv) {
  int64_t wanted = 100000000;
  uint64_t seed = 1;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  Rule rule = Rule::kBound;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value != nullptr && option == "--elements") {
      wanted = static_cast<int64_t>(std::atof(value));
    } else if (value != nullptr && option == "--seed") {
      seed = static_cast<uint64_t>(std::atoll(value));
    } else if (value != nullptr && option == "--threads") {
      threads = static_cast<unsigned>(std::max(1, std::atoi(value)));
    } else if (value != nullptr && option == "--rule" && ParseRule(value)) {
      rule = *ParseRule(value);
    } else {
      fmt::print(stderr,
                 "unknown option '{}': clean_attention [--elements 1e8] [--seed 1] [--threads N] "
                 "[--rule statistics]\n",
                 option);
      return 2;
    }
  }
  std::mutex mutex;
  Table tables[2];
  Count total;
  int64_t declined = 0;
  std::map<std::string, int64_t> mistrusted;  // by regime
  std::map<std::string, int64_t> not_judged;
  std::atomic<uint64_t> next{seed};
  std::atomic<int64_t> judged{0};
  const auto start = std::chrono::steady_clock::now();

  const auto ask = [&](const Drawn& drawn, const Question& question, bool portable) {
    OptimizedAttention attention(question.profile, portable);
    JudgeOptions options;
    options.explain = false;
    options.rule = rule;
    const Verdict verdict = AskAndJudge(attention, "optimized", question, {true, true}, options);
    const Count count = CountOf(verdict);
    judged.fetch_add(count.elements);
    const std::lock_guard lock(mutex);
    total.Add(count);
    for (const std::string& what : drawn.counts_as) tables[portable ? 1 : 0][what].Add(count);
    if (verdict.outcome == Outcome::kMistrusted) ++mistrusted[drawn.regime];
    declined += verdict.outcome == Outcome::kUnsupported ? 1 : 0;
    for (const OutputVerdict& output : verdict.outputs) {
      for (const ReasonCount& reason : output.not_judged) {
        not_judged[reason.reason] += reason.elements;
      }
    }
    if (verdict.outcome == Outcome::kFail || count.over > 0) {
      fmt::print("{}\n  {}\n  plan {}\n", verdict.outcome == Outcome::kFail ? "VIOLATION" : "OVER",
                 drawn.text, verdict.plan);
    }
  };
  const auto work = [&] {
    while (judged.load() < wanted) {
      const uint64_t index = next.fetch_add(1);
      const Drawn drawn = Draw(index).Case(index);
      Question question;
      question.c = ParseCase(drawn.text);
      question.profile = OptimizedAttention::StatedProfile();
      question.plan = OptimizedAttention::StatedPlan(false);
      question.inputs = GenerateCaseInputs(question.c, question.profile);
      for (const bool portable : {false, true}) ask(drawn, question, portable);
    }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  PrintTables(tables);
  fmt::print("\n{} answers, {} elements, violations {}, max err/bound {:.4f}\n", total.cases,
             total.elements, total.violations, total.largest);
  if (rule == Rule::kStatistics) {
    fmt::print("{} statistics, {} over their limits; largest z/limit {:.3f}, Q/limit {:.3f}\n",
               total.tests, total.over, total.largest_z, total.largest_q);
  }
  fmt::print(
      "Answers declined: {}. Whose bound says little beside the data (MISTRUSTED), by regime:\n",
      declined);
  for (const auto& [regime, count] : mistrusted) fmt::print("  {}: {}\n", regime, count);
  fmt::print("Elements not judged:\n");
  for (const auto& [reason, count] : not_judged) fmt::print("  {}: {}\n", reason, count);
  fmt::print("{:.0f} s, {} threads\n", seconds, threads);
  return total.violations == 0 && total.over == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
