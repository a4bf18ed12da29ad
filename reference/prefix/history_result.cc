#include "reference/prefix/history_result.h"

#include <fmt/format.h>

namespace kvcheck {
namespace {

struct FaultRow {
  std::string_view name;
  std::string_view clause;
};

constexpr std::array<FaultRow, kHistoryFaults> kFaults = {{
    {"none", ""},           {"written_later", "C6"}, {"other_tenant", "C8"},
    {"older_epoch", "C10"}, {"k_for_v", "C1"},       {"other_layer", "C1"},
    {"other_head", "C1"},   {"other_prefix", "C1"},  {"other_position", "C1"},
    {"stale", "C1"},        {"unwritten", "C1"},     {"damaged", "C1"},
    {"row_missing", "C2"},  {"shape", "C2"},         {"hit_unpublished", "C3"},
    {"hit_too_long", "C3"}, {"hit_missing", "C4"},   {"hit_unsteady", "C5"},
    {"accepted", "C7"},     {"refused", "C7"},       {"full", "C12"},
    {"blocks", "C11"},      {"over_budget", "C13"},  {"counters", "C14"},
}};

}  // namespace

std::string_view Name(HistoryFault fault) { return kFaults[static_cast<size_t>(fault)].name; }
std::string_view ClauseOf(HistoryFault fault) { return kFaults[static_cast<size_t>(fault)].clause; }

std::string OperationName(const PrefixCase& c, int64_t operation) {
  if (operation < 0) return "start";
  if (operation >= std::ssize(c.ops)) return "end";
  return std::string(Name(c.ops[static_cast<size_t>(operation)].kind));
}

std::string HistoryResult::Signature(const PrefixCase& c) const {
  if (outcome != Outcome::kFail) return "";
  return fmt::format("{} {}{}", OperationName(c, operation), Name(failure.fault),
                     failure.held ? " held" : "");
}

Verdict ToVerdict(const PrefixCase& c, const HistoryResult& result) {
  Verdict verdict;
  verdict.of_operations = true;
  verdict.outcome = result.outcome;
  verdict.case_text = Print(c);
  if (!result.reason.empty()) verdict.reasons.push_back(result.reason);
  if (result.outcome == Outcome::kFail) {
    verdict.reasons.push_back(
        fmt::format("breaks {} ({})", ClauseOf(result.failure.fault), Name(result.failure.fault)));
  }
  const HistoryCounts& counts = result.counts;
  verdict.elements = counts.rows;
  verdict.reasons.push_back(fmt::format(
      "{} operations ({} without a request, {} illegal and refused, {} without room); {} opens, {} "
      "hits of {} tokens, {} of them due; {} rows compared",
      counts.operations, counts.idle, counts.refusals, counts.full, counts.opens, counts.hits,
      counts.hit_tokens, counts.due, counts.rows));
  if (counts.unsupported > 0) {
    std::string kinds;
    for (int kind = 0; kind < kPrefixOpKinds; ++kind) {
      const int64_t count = counts.unsupported_by_kind[static_cast<size_t>(kind)];
      if (count == 0) continue;
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ",
                           Name(static_cast<PrefixOpKind>(kind)), count);
    }
    verdict.warnings.push_back(fmt::format("operations declined by the implementation: {}", kinds));
  }
  return verdict;
}

}  // namespace kvcheck
