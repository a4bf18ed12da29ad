// A call of an attention kernel, as its caller has it (any order of axes, packed or paged
// sequences, scaled K and V), as cases of dense attention.

#ifndef TOOLS_CORRIDOR_ATTENTION_CALL_H_
#define TOOLS_CORRIDOR_ATTENTION_CALL_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/tensor.h"
#include "tools/corridor/kvcheck.h"

namespace kvcheck {

// One case: the arrays of a call whose axes are (B, H, tokens, D).
struct DenseCall {
  std::string name;  // "sequence 3"; "": the call is one case
  AttentionCase c;
  Arrays inputs;   // by the names of the case
  Arrays outputs;  // "out", "lse"
};

struct DenseCalls {
  std::vector<DenseCall> calls;
  // What no case can be made of: sequences without queries, tokens that belong to no sequence.
  std::vector<std::string> not_judged;
  std::deque<Tensor> own;  // what arrays of `calls` lie in, where the caller's memory has it not
};

// Errors: kParse for a layout that is none; kIllegalCase for shapes that contradict each other,
// tables that point outside their tensors, options that exclude each other.
DenseCalls DenseCallsOf(const AttentionCall& call);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_ATTENTION_CALL_H_
