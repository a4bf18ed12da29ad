// False alarms of the derived bound: clean simulated kernels of every structure that a plan can
// name, judged until a number of elements is reached. A violation prints the case and plan that
// replay it.
//
//   clean_kernels [--elements 1e8] [--seed 1] [--threads N] [--rule bound|noise|statistics]
//
// noise: the bound of the model of independent roundings (bound.md, section 5); statistics: these
// too.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fuzz/draw_attention.h"
#include "reference/attention/attention_source.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/judge.h"

namespace kvcheck {
namespace {

struct Row {
  int64_t kernels = 0;
  int64_t elements = 0;
  int64_t violations = 0;
  double largest = 0;
};

// What a drawn kernel counts under, for the table.
std::vector<std::string> Features(const DrawnAttention& drawn) {
  const Plan& plan = drawn.plan;
  const AttentionCase& c = drawn.c;
  const auto yes = [](bool value) { return value ? "yes" : "no"; };
  const auto passes = [](const std::optional<OperandCut>& cut) {
    if (!cut) return std::string("whole");
    return fmt::format("{}{}", cut->passes == 1 ? "one part" : "sums of parts",
                       cut->toward_zero ? ", toward zero" : "");
  };
  return {
      fmt::format("softmax: {}", *plan.block == 0 ? "two passes" : "online"),
      fmt::format("exp: {}", Name(*plan.exp)),
      fmt::format("merge: {}", Name(*plan.merge)),
      fmt::format("P: {}{}", ShortName(*plan.p),
                  *plan.p_normalised       ? ", normalised"
                  : *plan.l_from_rounded_p ? ", in numerator and denominator"
                                           : ""),
      fmt::format("order of q.k: {}{}", Name(plan.qk->order), plan.qk->fma ? ", FMA" : ""),
      fmt::format("order of P.V: {}{}{}", Name(plan.pv->order), plan.pv->fma ? ", FMA" : "",
                  plan.pv->chained ? ", chained" : ""),
      fmt::format("accumulator of P.V: {}", Print(plan.pv->accumulator)),
      fmt::format("rounding: {}", plan.op->toward_zero ? "toward zero" : "to nearest"),
      fmt::format("FTZ: {}", yes(*plan.flush_subnormals)),
      fmt::format("lazy rescale: {}", yes(*plan.lazy_rescale > 0)),
      fmt::format("output: {}", ShortName(c.out)),
      fmt::format("regime: {}", c.data.regime),
      fmt::format("sinks: {}", yes(c.sinks.has_value())),
      fmt::format("K format: {}", IsPlain(c.k) ? "plain" : "affine"),
      fmt::format("integer q.k: {}", yes(plan.integer_qk.has_value())),
      fmt::format("integers in place of q: {}", yes(plan.fixed_q.has_value())),
      fmt::format("integers in place of p s: {}", yes(plan.fixed_p.has_value())),
      fmt::format("operands of q.k: {}", passes(plan.qk_operands)),
      fmt::format("operands of P.V: {}", passes(plan.pv_operands)),
      fmt::format("weights of a merge stored low: {}", yes(plan.merge_weights.has_value())),
      fmt::format("sums of a merge stored low: {}",
                  yes(plan.merge == MergeKind::kAccumulators &&
                      UnitRoundoff(*plan.partial) > UnitRoundoff(plan.op->dtype))),
      fmt::format("outputs through a low type: {}", yes(plan.through.has_value())),
      fmt::format("in the basis of storage: {}", yes(plan.dequantize == DequantizeKind::kRotated)),
  };
}

int Main(int argc, char** argv) {
  int64_t wanted = 100000000;
  uint64_t seed = 1;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  Rule rule = Rule::kBound;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--elements") wanted = static_cast<int64_t>(std::atof(argv[i + 1]));
    if (option == "--seed") seed = static_cast<uint64_t>(std::atoll(argv[i + 1]));
    if (option == "--rule") rule = ParseRule(argv[i + 1]).value_or(rule);
    if (option == "--threads") threads = static_cast<unsigned>(std::max(1, std::atoi(argv[i + 1])));
  }
  std::mutex mutex;
  std::map<std::string, Row> table;
  Row total;
  int64_t mistrusted = 0;
  std::map<std::string, int64_t> not_judged;
  std::atomic<uint64_t> next{seed};
  std::atomic<int64_t> judged{0};
  const auto start = std::chrono::steady_clock::now();

  const auto work = [&] {
    while (judged.load() < wanted) {
      const DrawnAttention drawn = DrawAttention(next.fetch_add(1), {});
      const TensorMap inputs = GenerateInputs(drawn.c, drawn.profile);
      SimulatedKernel kernel(drawn.plan, drawn.profile);
      MemorySink sink;
      kernel.Run(drawn.c, inputs, sink);
      const AttentionSource source(drawn.c, drawn.profile, drawn.plan, inputs);
      JudgeOptions options;
      options.explain = false;
      options.rule = rule;
      const Verdict verdict = Judge(source, sink, options);
      Row row;
      row.kernels = 1;
      for (const OutputVerdict& output : verdict.outputs) {
        row.elements += output.counts.judged;
        row.violations += output.counts.failed;
        if (output.worst) row.largest = std::max(row.largest, output.worst->ratio);
      }
      judged.fetch_add(row.elements);
      const std::lock_guard lock(mutex);
      const auto add = [&](Row* into) {
        into->kernels += row.kernels;
        into->elements += row.elements;
        into->violations += row.violations;
        into->largest = std::max(into->largest, row.largest);
      };
      add(&total);
      for (const std::string& feature : Features(drawn)) add(&table[feature]);
      mistrusted += verdict.outcome == Outcome::kMistrusted ? 1 : 0;
      for (const OutputVerdict& output : verdict.outputs) {
        for (const ReasonCount& reason : output.not_judged) {
          not_judged[reason.reason] += reason.elements;
        }
      }
      if (verdict.outcome == Outcome::kFail) {
        fmt::print("VIOLATION\n  {}\n  {}\n  plan {}\n  profile {}\n",
                   verdict.reasons.empty()               ? ""
                   : verdict.outputs[0].warnings.empty() ? verdict.reasons.front()
                                                         : verdict.outputs[0].warnings.front(),
                   Print(Case(drawn.c)), Print(drawn.plan), Print(drawn.profile));
      }
    }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  fmt::print(
      "| what | kernels | judged elements | violations | max err/bound |\n|---|---|---|---|---|\n");
  for (const auto& [feature, row] : table) {
    fmt::print("| {} | {} | {} | {} | {:.4f} |\n", feature, row.kernels, row.elements,
               row.violations, row.largest);
  }
  fmt::print("| **all** | {} | {} | {} | {:.6f} |\n\n", total.kernels, total.elements,
             total.violations, total.largest);
  fmt::print("Kernels whose verdict is MISTRUSTED: {}. Elements not judged:\n", mistrusted);
  for (const auto& [reason, count] : not_judged) fmt::print("  {}: {}\n", reason, count);
  fmt::print("{:.0f} s, {} threads\n", seconds, threads);
  return total.violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
