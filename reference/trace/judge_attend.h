// Judges the answer of Cache::Attend: attention over the visible tokens as stored, by the
// definition and the bound of reference/attention, under the plan that the implementation states.

#ifndef REFERENCE_TRACE_JUDGE_ATTEND_H_
#define REFERENCE_TRACE_JUDGE_ATTEND_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "reference/cache/model_state.h"
#include "reference/cache/vector_table.h"
#include "reference/judge/verdict.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {

struct AttendJudgement {
  Outcome outcome = Outcome::kPass;
  int64_t elements = 0;
  std::string message;                  // of FAIL and MISTRUSTED
  std::optional<OutputVerdict> output;  // of FAIL
};

// out: (rows, query_heads, queries, v_dim) of request.dtype. Queries of padding columns are not
// judged. explains: a failing output says what its errors may come from.
AttendJudgement JudgeAttend(const CacheSetup& setup, const ModelState& state,
                            const VectorTable& table, const AttendRequest& request,
                            const Plan& plan, const Profile& profile,
                            std::span<const std::byte> out, bool explains);

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_JUDGE_ATTEND_H_
