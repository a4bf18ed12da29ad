// The evaluator's loops for one instruction set; see evaluate_kernels-inl.h.

#include <type_traits>

#define KVCHECK_EVALUATE_TABLE kEvaluateBaseline
#define KVCHECK_EVALUATE_NAME "baseline"
#define KVCHECK_VECTOR_BYTES 16
#include "reference/attention/evaluate_kernels-inl.h"
