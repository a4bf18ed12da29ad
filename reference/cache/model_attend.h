// Attention of one query over a list of tokens, written out in double: the model's own answer to
// Attend. What is right is decided by reference/attention, which this does not use.

#ifndef REFERENCE_CACHE_MODEL_ATTEND_H_
#define REFERENCE_CACHE_MODEL_ATTEND_H_

#include <optional>
#include <span>

#include "reference/cache/vector_table.h"
#include "reference/spec/expected_step.h"

namespace kvcheck {

// How AttendPlainly computes, as the text of a plan.
inline constexpr const char* kModelAttendPlan =
    "qk=f64:sequential pv=f64:sequential l=f64:sequential op=f64 scale_roundings=1 prescale=none "
    "scores=f64 bias_roundings=0 exp=exp exp_error=2^-52 block=all sink=first p=f64 merge=none "
    "splits=1 normalise=divide flush=no saturate=no dequantize=inside:2";

// Definition: softmax over scale q.k_j (and the sink, whose value is 0) times v_j; zero where there
// is neither a token nor a sink.
// Shapes: q (Dk), out (Dv).
void AttendPlainly(std::span<const double> q, std::span<const StoredToken> tokens, int64_t kv_head,
                   double scale, std::optional<float> sink, VectorTable* table,
                   std::span<double> out);

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_MODEL_ATTEND_H_
