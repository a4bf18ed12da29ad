// How many faults each rule of comparison sees: kvcheck's derived bound, the bound with the
// statistical tier, the bound of independent roundings without statistics (noise), and the rules in
// common use, over the catalogue of attention faults, three types and three lengths, with the false
// alarms on clean kernels beside them.
//
//   detection [--problems 200] [--lengths 64,1024,8192] [--threads N]

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "reference/attention/attention_source.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/judge.h"
#include "reference/numerics/convert.h"
#include "tools/faults/attention_faults.h"

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, 9> kRules = {
    "bound",     "noise",       "statistics", "allclose 1e-2", "allclose 1e-3",
    "NMSE 5e-4", "cosine .999", "2x naive",   "torch default"};

// Regimes in which attention is not degenerate: every key carries information.
constexpr std::array<std::string_view, 4> kRegimes = {"gauss", "outlier", "sink", "same_sign"};

std::string CaseText(DType dtype, int64_t n, int problem) {
  const std::string_view type = ShortName(dtype);
  return fmt::format(
      "attention b=2 hq=4 hkv=2 l=4 t={} d=64 q={} k={} v={} out={} "
      "mask=causal_bottom_right+left_pad:3,5+bool:B1LT data={}:{}",
      n, type, type, type, type, kRegimes[static_cast<size_t>(problem) % kRegimes.size()],
      // Even seeds hide no row of the mask completely.
      2 * problem);
}

// An online softmax in blocks of 64 keys with f32 accumulators in eight lanes; P in the storage
// type, or in f32 for the fault that rounds it.
Plan KernelPlan(DType dtype, bool p_in_f32) {
  return ParsePlan(fmt::format(
      "qk=f32:lanes:8:fma pv=f32:sequential:fma:chained l=f32:lanes:8 op=f32 scale_roundings=1 "
      "prescale=none scores=f32 bias_roundings=0 exp=exp exp_error=2^-23 exp_floor=2^-126 "
      "lazy_rescale=0 block=64 sink=first p={} p_scale=1 p_normalised=no l_from=unrounded "
      "merge=none splits=1 normalise=divide flush=no saturate=no tanh_error=2^-22 log_error=2^-22",
      p_in_f32 ? "f32" : ShortName(dtype)));
}

// What a plain sequence of tensor operations in the storage type gives.
Plan NaivePlan(DType dtype) {
  return ParsePlan(fmt::format(
      "qk=f32:sequential pv=f32:sequential l=f32:sequential op=f32 scale_roundings=1 prescale=none "
      "scores={} bias_roundings=0 exp=exp exp_error=2^-23 exp_floor=2^-126 lazy_rescale=0 "
      "block=all sink=first p={} p_scale=1 p_normalised=yes l_from=unrounded merge=none splits=1 "
      "normalise=divide flush=no saturate=no tanh_error=2^-22 log_error=2^-22",
      ShortName(dtype), ShortName(dtype)));
}

std::vector<double> Output(const MemorySink& sink) {
  const Tensor& out = Get(sink.tensors(), "out");
  std::vector<double> values(static_cast<size_t>(out.ElementCount()));
  DecodeTo(out, 0, values);
  return values;
}

// Exact values of the definition, rounded once to the output type: what a golden file would hold.
std::vector<double> Expected(const AttentionSource& source, DType dtype) {
  std::vector<double> values(static_cast<size_t>(source.Outputs()[0].shape.ElementCount()));
  for (int64_t i = 0; i < source.TileCount(); ++i) {
    const std::vector<ExpectedTile> tiles = source.Tiles(i, {});
    const ExpectedTile& tile = tiles[0];
    const auto first = static_cast<size_t>(tile.first_row * source.Outputs()[0].row_length);
    for (size_t e = 0; e < tile.value.size(); ++e)
      values[first + e] = RoundTo(dtype, tile.value[e]);
  }
  return values;
}

// Padding queries promise nothing; every rule skips them.
std::vector<bool> Judged(const AttentionSource& source) {
  std::vector<bool> judged(static_cast<size_t>(source.Outputs()[0].shape.ElementCount()), true);
  for (int64_t i = 0; i < source.TileCount(); ++i) {
    const std::vector<ExpectedTile> tiles = source.Tiles(i, {});
    const ExpectedTile& tile = tiles[0];
    const auto length = static_cast<size_t>(source.Outputs()[0].row_length);
    for (size_t r = 0; r < tile.standing.size(); ++r) {
      if (tile.standing[r] == Standing::kJudged) continue;
      for (size_t c = 0; c < length; ++c) {
        judged[(static_cast<size_t>(tile.first_row) + r) * length + c] = false;
      }
    }
  }
  return judged;
}

// true: the rule rejects. Rules as their users write them.
std::array<bool, kRules.size()> CommonRules(const std::vector<double>& got,
                                            const std::vector<double>& want,
                                            const std::vector<double>& naive,
                                            const std::vector<bool>& judged, DType dtype) {
  double rtol = 1.3e-6;
  if (dtype == DType::kFloat16) rtol = 1e-3;
  if (dtype == DType::kBFloat16) rtol = 1.6e-2;
  bool loose = false, tight = false, torch = false;
  double error2 = 0, want2 = 0, got2 = 0, dot = 0, worst = 0, worst_naive = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!judged[i]) continue;
    const double error = std::fabs(got[i] - want[i]);
    loose |= !(error <= 1e-2 + 1e-2 * std::fabs(want[i]));
    tight |= !(error <= 1e-3 + 1e-3 * std::fabs(want[i]));
    torch |= !(error <= 1e-5 + rtol * std::fabs(want[i]));
    error2 += error * error;
    want2 += want[i] * want[i];
    got2 += got[i] * got[i];
    dot += got[i] * want[i];
    worst = std::max(worst, error);
    worst_naive = std::max(worst_naive, std::fabs(naive[i] - want[i]));
  }
  return {false,
          false,
          false,
          loose,
          tight,
          !(error2 / want2 <= 5e-4),
          !(dot / std::sqrt(want2 * got2) >= 0.999),
          !(worst <= 2 * worst_naive),
          torch};
}

// The largest change that the fault makes to an exact result, in multiples of the bound. At most 1:
// a correct kernel of this plan may give the faulty output, so that no sound rule can reject it.
double ExactEffect(const AttentionSource& source, const AttentionCase& c, const TensorMap& inputs,
                   AttentionRules rules) {
  AttentionCase exact = c;
  exact.out = DType::kFloat64;
  SimulatedKernel kernel(
      ParsePlan("qk=f64:sequential pv=f64:sequential l=f64:sequential op=f64 prescale=none "
                "scores=f64 exp=exp exp_error=0 exp_floor=0 lazy_rescale=0 block=64 p=f64 "
                "p_normalised=no merge=none normalise=divide flush=no saturate=no"),
      Profile(), std::move(rules));
  MemorySink sink;
  kernel.Run(exact, inputs, sink);
  const std::vector<double> faulty = Output(sink);
  double largest = 0;
  for (int64_t i = 0; i < source.TileCount(); ++i) {
    const std::vector<ExpectedTile> tiles = source.Tiles(i, {});
    const ExpectedTile& tile = tiles[0];
    const auto length = static_cast<size_t>(source.Outputs()[0].row_length);
    const auto first = static_cast<size_t>(tile.first_row) * length;
    for (size_t e = 0; e < tile.value.size(); ++e) {
      if (tile.standing[e / length] != Standing::kJudged || tile.bound[e] == 0) continue;
      largest = std::max(largest, std::fabs(faulty[first + e] - tile.value[e]) / tile.bound[e]);
    }
  }
  return largest;
}

struct Cell {
  int64_t problems = 0;
  int64_t unseen = 0;         // neither bound nor statistics
  int64_t inside = 0;         // of these, faults that stay inside the bound when computed exactly
  double largest_unseen = 0;  // exact effect of an unseen fault, in bounds
  std::array<int64_t, kRules.size()> detected{};
  double largest_ratio = 0;
  double detectable = 0;  // mean share of keys whose loss the bound would show
};

struct Table {
  std::mutex mutex;
  std::map<std::string, Cell> cells;  // "fault|type|n"
};

// effect: of a fault that was not seen, by ExactEffect; else negative.
void Add(Table* table, const std::string& key, const std::array<bool, kRules.size()>& rejected,
         const Verdict& verdict, double effect) {
  const std::lock_guard lock(table->mutex);
  Cell& cell = table->cells[key];
  cell.problems += 1;
  if (effect >= 0) {
    cell.unseen += 1;
    cell.inside += effect <= 1 ? 1 : 0;
    cell.largest_unseen = std::max(cell.largest_unseen, effect);
  }
  for (size_t i = 0; i < rejected.size(); ++i) cell.detected[i] += rejected[i] ? 1 : 0;
  if (verdict.outputs[0].worst) {
    cell.largest_ratio = std::max(cell.largest_ratio, verdict.outputs[0].worst->ratio);
  }
  cell.detectable += verdict.outputs[0].detectable_share.value_or(0);
}

void RunProblem(DType dtype, int64_t n, int problem, Table* table) {
  const Case any_case = ParseCase(CaseText(dtype, n, problem));
  const auto& c = std::get<AttentionCase>(any_case);
  const Profile profile;
  const TensorMap inputs = GenerateInputs(any_case, profile);
  JudgeOptions options;
  options.explain = false;

  SimulatedKernel naive_kernel(NaivePlan(dtype), profile);
  MemorySink naive_sink;
  naive_kernel.Run(any_case, inputs, naive_sink);
  const std::vector<double> naive = Output(naive_sink);

  for (const bool p_in_f32 : {false, true}) {
    const Plan plan = KernelPlan(dtype, p_in_f32);
    const AttentionSource source(c, profile, plan, inputs);
    const std::vector<double> want = Expected(source, dtype);
    const std::vector<bool> judged = Judged(source);
    const auto run = [&](const std::string& id, const AttentionRules& rules) {
      SimulatedKernel kernel(plan, profile, rules);
      MemorySink sink;
      kernel.Run(any_case, inputs, sink);
      if (id != "clean" && kernel.Hits() == 0) return;
      std::array<bool, kRules.size()> rejected =
          CommonRules(Output(sink), want, naive, judged, dtype);
      Verdict verdict;
      JudgeOptions asked = options;
      for (const Rule rule : {Rule::kBound, Rule::kNoise, Rule::kStatistics}) {
        asked.rule = rule;
        verdict = Judge(source, sink, asked);
        rejected[static_cast<size_t>(rule)] = verdict.outcome == Outcome::kFail;
      }
      const double effect =
          id == "clean" || rejected[2] ? -1 : ExactEffect(source, c, inputs, rules);
      Add(table, fmt::format("{}|{}|{}", id, ShortName(dtype), n), rejected, verdict, effect);
    };
    if (!p_in_f32) run("clean", {});
    for (const AttentionFault& fault : DetectionFaults()) {
      const bool rounds_p = fault.id == "p_rounded_to_bf16";
      if (fault.applies(c) && rounds_p == p_in_f32) run(std::string(fault.id), fault.rules());
    }
  }
}

int Main(int argc, char** argv) {
  int problems = 200;
  std::vector<int64_t> lengths = {64, 1024, 8192};
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--problems") problems = std::atoi(argv[i + 1]);
    if (option == "--threads") threads = static_cast<unsigned>(std::max(1, std::atoi(argv[i + 1])));
    if (option == "--lengths") {
      lengths.clear();
      for (const Piece& piece : Split(WholeLine(argv[i + 1]), ',')) {
        lengths.push_back(ParseInt(piece, 1, 1 << 20));
      }
    }
  }
  struct Job {
    DType dtype;
    int64_t n;
    int problem;
  };
  std::vector<Job> jobs;
  const std::array<DType, 3> types = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  for (int64_t n : lengths) {
    for (DType dtype : types) {
      for (int problem = 0; problem < problems; ++problem) jobs.push_back({dtype, n, problem});
    }
  }
  // One run: its false-alarm probability is shared by every statistic of every cell.
  Table table;
  std::atomic<size_t> next{0};
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      for (size_t job; (job = next.fetch_add(1)) < jobs.size();) {
        RunProblem(jobs[job].dtype, jobs[job].n, jobs[job].problem, &table);
        if (job % 50 == 0) fmt::print(stderr, "\r{} of {} problems", job, jobs.size());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  fmt::print(stderr, "\r\n");

  fmt::print("Share of faulty problems that a rule rejects, % (clean: false alarms)\n\n");
  fmt::print("| fault | type | n | problems |");
  for (std::string_view rule : kRules) fmt::print(" {} |", rule);
  fmt::print(
      " unseen | of these inside the bound | largest unseen effect / bound | worst err/bound | "
      "keys "
      "detectable |\n|---|---|---|---|");
  for (size_t i = 0; i < kRules.size() + 5; ++i) fmt::print("---|");
  fmt::print("\n");
  std::array<double, kRules.size()> mean{};
  int64_t faulty_cells = 0;
  int64_t visible_problems = 0;
  int64_t seen_problems = 0;
  const auto print_row = [&](std::string_view id) {
    for (DType dtype : types) {
      for (int64_t n : lengths) {
        const auto found = table.cells.find(fmt::format("{}|{}|{}", id, ShortName(dtype), n));
        if (found == table.cells.end()) continue;
        const Cell& cell = found->second;
        const auto total = static_cast<double>(cell.problems);
        fmt::print("| {} | {} | {} | {} |", id, ShortName(dtype), n, cell.problems);
        for (size_t i = 0; i < kRules.size(); ++i) {
          const double share = 100 * static_cast<double>(cell.detected[i]) / total;
          fmt::print(" {:.3g} |", share);
          if (id != "clean") mean[i] += share;
        }
        fmt::print(" {} | {} | {:.3g} | {:.3g} | {:.2f} |\n", cell.unseen, cell.inside,
                   cell.largest_unseen, cell.largest_ratio, cell.detectable / total);
        visible_problems += id == "clean" ? 0 : cell.problems - cell.inside;
        seen_problems += id == "clean" ? 0 : cell.problems - cell.unseen;
        faulty_cells += id != "clean" ? 1 : 0;
      }
    }
  };
  print_row("clean");
  for (const AttentionFault& fault : DetectionFaults()) print_row(fault.id);
  fmt::print("| **mean over faulty cells** | | | |");
  for (double share : mean) {
    fmt::print(" {:.1f} |", share / static_cast<double>(std::max<int64_t>(1, faulty_cells)));
  }
  fmt::print(" | | | | |\n\n");
  fmt::print(
      "Of {} faulty outputs that leave the bound when computed exactly, bound + statistics see "
      "{}: {:.2f} %.\n",
      visible_problems, seen_problems,
      100 * static_cast<double>(seen_problems) /
          static_cast<double>(std::max<int64_t>(1, visible_problems)));
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
