// What a case may have left out: tensors that lie beside its inputs and that it does not use
// (sinks, a mask, scales, starts of sequences), and conventions that nobody wrote down (a softcap,
// a window, a causal mask, a scale, the base of lse). Each is held against one failing row of the
// observed output; what fits it is offered as a question that all of the output may be the answer
// to.

#ifndef REFERENCE_ATTENTION_COMPLETIONS_H_
#define REFERENCE_ATTENTION_COMPLETIONS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/attention/head_data.h"
#include "reference/attention/other_readings.h"
#include "reference/attention/visible.h"

namespace kvcheck {

// Windows that are tried end at the longest of a row: 4, 8, 12, ..., and each with one key more, as
// kernels have it that count the keys before the query.
inline constexpr int64_t kWindowStep = 4;

// One row of an observed output, and what it was asked over.
struct ObservedRow {
  QueryIndex query;
  std::span<const double> q;
  const HeadData& head;
  std::span<const double> got;
};

// Likeliest first; the text of each is what the case would say besides. Inputs that the case does
// not name are those that it may have left out:
//   sinks (Hq), mask (of bool or a real type, in a shape that a term has), alibi_slopes (Hq)
//   k_scale, v_scale: one number, one for each head, or one for each vector, that K and V as given
//   are multiplied by
//   cu_seqlens_q, cu_seqlens_k: starts of sequences that lie one behind the other
std::vector<OtherReading> CompletionsOf(const AskedAttention& asked, const OutputInfo& output,
                                        const ObservedRow& row);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_COMPLETIONS_H_
