// What running a history found.

#ifndef REFERENCE_PREFIX_HISTORY_RESULT_H_
#define REFERENCE_PREFIX_HISTORY_RESULT_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "reference/judge/verdict.h"
#include "reference/prefix/history_probes.h"
#include "reference/spec/prefix_case.h"

namespace kvcheck {

// The clauses of contract.md, section 5, as they fail; rows by what they are (section 6).
enum class HistoryFault : uint8_t {
  kNone,
  // Rows.
  kWrittenLater,
  kOtherTenant,
  kOlderEpoch,
  kKForV,
  kOtherLayer,
  kOtherHead,
  kOtherPrefix,
  kOtherPosition,
  kStale,
  kUnwritten,
  kDamaged,
  kRowMissing,
  kShape,  // rows of another number, shape or type than what was asked for
  // Hits.
  kHitUnpublished,
  kHitTooLong,
  kHitMissing,
  kHitUnsteady,
  // Calls and numbers.
  kAccepted,
  kRefused,
  kFull,
  kBlocks,
  kOverBudget,
  kCounters,
};
inline constexpr int kHistoryFaults = static_cast<int>(HistoryFault::kCounters) + 1;
// "other_tenant", ...
std::string_view Name(HistoryFault fault);
// "C1": the clause that it breaks first of all.
std::string_view ClauseOf(HistoryFault fault);

struct HistoryFailure {
  HistoryFault fault = HistoryFault::kNone;
  std::string text;   // one sentence without its subject: what was expected, and what there is
  int request = -1;   // whose rows are wrong
  bool held = false;  // rows that a request had before the operation, which is not its own
};

struct HistoryCounts {
  int64_t operations = 0;  // carried out or refused; not those without a request
  int64_t idle = 0;
  int64_t refusals = 0;  // illegal calls that were refused
  int64_t full = 0;      // writes for which there was no room
  int64_t opens = 0;
  int64_t hits = 0;  // of at least one token
  int64_t hit_tokens = 0;
  int64_t due = 0;    // opens of which a hit was due
  int64_t might = 0;  // opens of prompts that begin with something kept
  int64_t reads = 0;  // of all rows of a request
  int64_t rows = 0;   // rows of a token in one layer that were compared
  int64_t coded = 0;  // of these, within a format's bound and not equal
  int64_t collisions = 0;
  int64_t unsupported = 0;
  std::array<int64_t, kPrefixOpKinds> unsupported_by_kind{};
};

struct HistoryResult {
  Outcome outcome = Outcome::kPass;
  int64_t operation = -1;  // that decided it, from 0; the number of operations: what follows them
  HistoryFailure failure;  // of FAIL
  std::string declined;    // of UNSUPPORTED: what the implementation said
  std::string reason;      // one line; "" of PASS
  bool by_case = false;    // MISTRUSTED whoever answers
  HistoryCounts counts;
  HistoryProbeCounts probes{};

  // The same for failures with one cause: "open other_tenant", "evict written_later held". "" of
  // PASS.
  std::string Signature(const PrefixCase& c) const;
};

// As the report of `kvcheck run` shows it.
Verdict ToVerdict(const PrefixCase& c, const HistoryResult& result);
// "open", "end": of the operation that decided it.
std::string OperationName(const PrefixCase& c, int64_t operation);

}  // namespace kvcheck

#endif  // REFERENCE_PREFIX_HISTORY_RESULT_H_
