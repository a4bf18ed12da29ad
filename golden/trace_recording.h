// A recorded trace: what a real library's caches answered to the operations of a case of kind
// `cache`, and what they showed after each, as the outputs of an observed record
// (golden/README.md, Recorded traces; golden/make/trace_recording.py writes them). Nothing in the
// file is trusted: types, shapes and counts are held to the case before anything is used.

#ifndef GOLDEN_TRACE_RECORDING_H_
#define GOLDEN_TRACE_RECORDING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/spec/cache_layout.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/tensor.h"
#include "reference/spec/trace.h"

namespace kvcheck {

struct RecordedAnswer {
  enum class Status : uint8_t { kIdle, kDone, kRefused, kUnsupported };
  Status status = Status::kIdle;
  int64_t number = -1;          // of trim: tokens said to be gone
  bool changed_inputs = false;  // the caller's arrays were changed by the call
  // Arrays that an earlier call returned were changed. Not judged: a view is valid until the next
  // call (spec/cache_implementation.h).
  bool changed_results = false;
  std::string message;                  // of what was raised
  std::span<const std::byte> attended;  // (rows, query_heads, queries, v_dim) of an attend
};

// The planes of stored vectors, each (rows, kv_heads, columns, bytes of a vector); of a parameter
// (PlaneScope::kTensor) its bytes.
using RecordedPlanes = std::array<std::span<const std::byte>, kMaxPlanes>;

// What a cache showed. Numbers are -1, spans empty and layout absent where the library cannot tell.
struct RecordedState {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t queries = 0;
  std::optional<CacheLayout> layout;
  KvFormat k = PlainFormat{};
  KvFormat v = PlainFormat{};
  bool holds = false;  // whether there are K and V at all
  RecordedPlanes k_planes, v_planes;
  bool tells_visible = false;
  bool tells_retained = false;
  // Bit rows as those of StepView.
  std::vector<uint64_t> visible;   // (rows, queries)
  std::vector<uint64_t> retained;  // (rows)
  std::vector<int64_t> offsets;    // (rows)
  std::vector<int64_t> unfed_padding;
  int64_t size = -1;
  int64_t live_bytes = -1;
  int64_t capacity_bytes = -1;
  int8_t empty = -1;
  int8_t trimmable = -1;
  int8_t pending = -1;
};

class TraceRecording {
 public:
  // outputs: of an observed record of the case; context: where they are, for messages.
  // Errors: kUnreadableFile when they are no recording of this case.
  TraceRecording(const CacheCase& c, TensorMap outputs, const std::string& context);
  TraceRecording(TraceRecording&&) = default;

  // Per operation of the case.
  const std::vector<RecordedAnswer>& answers() const { return answers_; }
  // What a slot showed after an operation; nullptr: it was empty.
  const RecordedState* State(int64_t operation, int slot) const;
  int64_t states() const { return static_cast<int64_t>(states_.size()); }

 private:
  class Reader;
  TensorMap outputs_;  // owns what spans refer to
  std::vector<RecordedAnswer> answers_;
  std::vector<std::array<int64_t, kSlots>> slots_;
  std::vector<RecordedState> states_;
};

// The names of a recording's tensors, so that others can say what is missing.
std::span<const char* const> RecordingOutputs();

}  // namespace kvcheck

#endif  // GOLDEN_TRACE_RECORDING_H_
