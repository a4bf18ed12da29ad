// Makes a drawn attention case one of a space: what the space has stays, what it has not becomes
// something that it has.

#ifndef FUZZ_FIT_ATTENTION_H_
#define FUZZ_FIT_ATTENTION_H_

#include <cstddef>
#include <functional>

#include "reference/spec/attention_space.h"
#include "reference/spec/case.h"

namespace kvcheck {

// One of 0 .. count - 1, count >= 1.
using PickOne = std::function<size_t(size_t count)>;

// Heads, dimensions and the types of queries, K, V and the output.
// Errors of both: kUsage where nothing that is drawn is in the space.
void FitTypes(const AttentionSpace& space, const PickOne& pick, AttentionCase* c);
// draw: another mask of the case, any.
void FitMask(const AttentionSpace& space, const std::function<MaskSpec()>& draw, AttentionCase* c);
// Softcap, sinks, ALiBi, log-sum-exp: left out where they are not there.
void FitExtras(const AttentionSpace& space, AttentionCase* c);

}  // namespace kvcheck

#endif  // FUZZ_FIT_ATTENTION_H_
