// The folders that FlashInfer writes at FLASHINFER_LOGLEVEL=10, one for each call of its API, as
// the calls they were: function, arguments by name, state of execution. No tensor is read here.
//
//   DIR/session.jsonl                       every record of every call, in the order of writing
//   DIR/STAMP_pidP_FUNCTION_callNNNN/       one call
//     metadata.jsonl                        a record before the call, one after it
//     inputs.safetensors, outputs.safetensors
//     graph_flushes/flush_NNNN/             the same three files after each replay of a CUDA graph
//
// Source: FlashInfer 0.7.2, flashinfer/api_logging.py; docs.flashinfer.ai/logging.html.

#ifndef TOOLS_FLASHINFER_DUMP_H_
#define TOOLS_FLASHINFER_DUMP_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/flashinfer/signature.h"

namespace kvcheck {

// An argument or a result.
struct DumpedValue {
  enum class Kind { kNone, kBool, kNumber, kText, kTensor, kItems, kOther };
  Kind kind = Kind::kNone;
  bool flag = false;
  double number = 0;
  std::string text;  // of kText; of kTensor the name in its file; of kOther what it is
  std::vector<DumpedValue> items{};
  bool operator==(const DumpedValue&) const = default;
};

struct DumpedCall {
  enum class State {
    kFinished,
    kUnfinished,  // it raised an error, crashed, or was killed
    kNotReplayed  // captured into a CUDA graph that never ran
  };
  std::string folder;  // below the dump: "20260822_..._call0001", ".../graph_flushes/flush_0001"
  std::string path;
  std::string function;  // "BatchPrefillWithPagedKVCacheWrapper.run"
  std::string object;    // process and object of a method; "": a function
  std::string version;   // of FlashInfer
  State state = State::kUnfinished;
  bool is_replay = false;  // tensors as they were after a replay of the CUDA graph
  bool is_safetensors = true;
  std::vector<Parameter> signature{};
  std::map<std::string, DumpedValue> arguments{};  // those passed, by the parameter's name
  std::vector<DumpedValue> unnamed{};              // passed behind the last positional parameter
  std::set<std::string> outputs{};                 // names of tensors
  std::set<std::string> strided{};  // tensors that were not contiguous in the call; the file's are
};

// A folder that is no call that can be understood, and why.
struct UnreadCall {
  std::string folder;
  std::string function;  // "": not known
  std::string reason;
  bool is_empty = false;  // FlashInfer itself could not write the call
};

struct Dump {
  std::vector<DumpedCall> calls;  // of a process in the order in which they were made
  std::vector<UnreadCall> unread;
  // session.jsonl names every call; without it the order is that of the time stamps, in
  // milliseconds.
  bool is_ordered = true;
};

// Errors: kUnreadableFile: no folder; kUsage: the folder of one call; kSelection: it has no calls.
// What is wrong with one call is an entry of `unread`.
Dump ReadDump(const std::string& folder);

}  // namespace kvcheck

#endif  // TOOLS_FLASHINFER_DUMP_H_
