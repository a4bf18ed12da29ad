// The evaluator's loops for one instruction set; see evaluate_kernels-inl.h.

#include <type_traits>

#define KVCHECK_EVALUATE_TABLE kEvaluateV4
#define KVCHECK_EVALUATE_NAME "v4"
#define KVCHECK_VECTOR_BYTES 64
#include "reference/attention/evaluate_kernels-inl.h"
