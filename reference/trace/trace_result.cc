#include "reference/trace/trace_result.h"

#include <fmt/format.h>

namespace kvcheck {

int TargetOf(const CacheOp& op) {
  switch (op.kind) {
    case CacheOpKind::kMerge:
    case CacheOpKind::kExtract:
    case CacheOpKind::kCopy:
    case CacheOpKind::kLoad:
      return op.target;
    case CacheOpKind::kSave:
    case CacheOpKind::kAttend:
    case CacheOpKind::kDamage:
      return -1;
    default:
      return op.slot;
  }
}

std::string TraceResult::Signature(const CacheCase& c) const {
  if (outcome == Outcome::kPass || operation < 0) return "";
  const CacheOp& op = c.ops[static_cast<size_t>(operation)];
  std::string text = fmt::format("{} {}", Name(op.kind), Name(failure.fault));
  if (slot >= 0 && slot != TargetOf(op)) text += " operand";
  return text;
}

Verdict ToVerdict(const CacheCase& c, const TraceResult& result) {
  Verdict verdict;
  verdict.outcome = result.outcome;
  verdict.case_text = Print(c);
  if (!result.reason.empty()) verdict.reasons.push_back(result.reason);
  if (result.outcome == Outcome::kFail) {
    verdict.reasons.push_back(fmt::format("breaks {} ({})", PropertyOf(result.failure.fault),
                                          Name(result.failure.fault)));
  }
  const TraceCounts& counts = result.counts;
  verdict.of_operations = true;
  verdict.elements = counts.outputs;
  if (result.attention) {
    verdict.outputs.push_back(*result.attention);
    verdict.elements -= result.attention->counts.judged;
    verdict.plan = result.attention_plan;
  }
  verdict.reasons.push_back(fmt::format(
      "{} operations ({} on empty slots, {} illegal and refused), {} states compared, {} elements "
      "of attention",
      counts.operations, counts.idle, counts.refusals, counts.states, counts.outputs));
  if (counts.unsupported > 0) {
    std::string kinds;
    for (int kind = 0; kind < kCacheOpKinds; ++kind) {
      const int64_t count = counts.unsupported_by_kind[static_cast<size_t>(kind)];
      if (count == 0) continue;
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ",
                           Name(static_cast<CacheOpKind>(kind)), count);
    }
    // Part of the question was not answered: strict runs do not let that pass.
    verdict.warnings.push_back(fmt::format("operations declined by the implementation: {}", kinds));
  }
  return verdict;
}

}  // namespace kvcheck
