// FlashInfer's functions of attention: what a dumped call of one of them asked and answered, in
// the words of AttentionCall, and the plan of the kernel that answered.
//
// Source: FlashInfer 0.7.2, flashinfer/decode.py and prefill.py; of kernels
// golden/make/plans_of_gpu_kernels.md, section 5.

#ifndef TOOLS_FLASHINFER_ATTENTION_FUNCTIONS_H_
#define TOOLS_FLASHINFER_ATTENTION_FUNCTIONS_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tools/corridor/kvcheck.h"
#include "tools/flashinfer/arguments.h"
#include "tools/flashinfer/dump.h"

namespace kvcheck {

// The calls that made a wrapper what it is when it runs; of functions both are null.
struct WrapperCalls {
  const DumpedCall* init = nullptr;
  const DumpedCall* plan = nullptr;
  // Why what it is when it runs is not known, though there may be a plan; "" where it is known.
  std::string unknown{};
};

enum class FunctionKind {
  kAttention,  // computes attention
  kState,      // __init__ or plan of a wrapper: read, not judged
  kOther
};
FunctionKind KindOfFunction(const std::string& function);

struct UnderstoodCall {
  AttentionCall call;
  std::string plan;                  // what is known of the kernel
  std::vector<std::string> remarks;  // what the dump leaves open, or is not judged
  // What arrays of `call` lie in.
  std::vector<std::unique_ptr<Arguments>> arguments;
  std::unique_ptr<MappedTensors> outputs;
  std::deque<std::vector<int64_t>> integers;
  std::deque<std::vector<float>> floats;
  std::deque<std::vector<unsigned char>> bytes;

  // Errors: kUnreadableFile when a file changed while it was read.
  void ThrowIfDamaged() const;
};

// call: finished, kAttention. has_plan: the caller states the plan of the kernel himself.
// Errors: kUnsupported: arguments that are not understood; state that the dump does not have.
// kMissingData, kIllegalCase: files and tables that contradict the call.
UnderstoodCall Understand(const DumpedCall& call, const WrapperCalls& wrapper, bool has_plan);

}  // namespace kvcheck

#endif  // TOOLS_FLASHINFER_ATTENTION_FUNCTIONS_H_
