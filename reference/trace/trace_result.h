// What running a trace beside the model found.

#ifndef REFERENCE_TRACE_TRACE_RESULT_H_
#define REFERENCE_TRACE_TRACE_RESULT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "reference/judge/verdict.h"
#include "reference/spec/trace.h"
#include "reference/trace/probes.h"
#include "reference/trace/step_compare.h"

namespace kvcheck {

// The slot whose cache an operation changes, fills or replaces; -1: it only reads.
int TargetOf(const CacheOp& op);

struct TraceCounts {
  int64_t operations = 0;   // carried out or refused; not those on empty slots
  int64_t idle = 0;         // named an empty slot
  int64_t refusals = 0;     // illegal calls that were refused
  int64_t states = 0;       // states of caches that were compared
  int64_t with_tokens = 0;  // of these, caches that hold tokens
  int64_t shown = 0;  // of these, caches that show tokens: retained, visible to a query, or both
  // Of with_tokens, prepared prefills before the next append: there is no query to ask about, and
  // no column of a probe may be appended. Only a cache that can say what it retains shows a token.
  int64_t between = 0;
  int64_t outputs = 0;  // elements of attention that were judged
  int64_t tokens = 0;
  int64_t collisions =
      0;  // vectors of different tokens with equal bytes: they cannot be told apart
  std::array<int64_t, kCacheOpKinds> by_kind{};  // of `operations`
  int64_t unsupported = 0;  // declined by the implementation, and skipped; not among `operations`
  std::array<int64_t, kCacheOpKinds> unsupported_by_kind{};
};

struct TraceResult {
  // PASS, FAIL, MISTRUSTED (tokens could not be told apart, were never shown or never there, or
  // attention proved nothing),
  // UNSUPPORTED (there was nothing to judge because operations were declined).
  Outcome outcome = Outcome::kPass;
  int64_t operation = -1;  // index of the operation that decided it, from 0; -1: none
  int slot = -1;           // whose state is wrong
  StepFailure failure;     // of FAIL
  // Of a failing attend: its output, and the plan that it was judged by.
  std::optional<OutputVerdict> attention;
  std::string attention_plan;
  std::string declined;   // of UNSUPPORTED: what the implementation said, without the operation
  std::string reason;     // one line: what broke, after which operation; "" of PASS
  bool by_trace = false;  // of MISTRUSTED: no answer to this trace need show a token
  TraceCounts counts;
  ProbeCounts probes{};  // how often each rare state was reached

  // What is the same for failures with the same cause, whatever the trace: the fault, the kind of
  // operation and whether the slot is the operation's target or an operand. "" of PASS.
  std::string Signature(const CacheCase& c) const;
};

// As the report of `kvcheck run` shows it.
Verdict ToVerdict(const CacheCase& c, const TraceResult& result);

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_TRACE_RESULT_H_
