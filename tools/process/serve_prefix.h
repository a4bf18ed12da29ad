// The other end of remote_prefix.h: requests of kind prefix, answered by an implementation of this
// program.

#ifndef TOOLS_PROCESS_SERVE_PREFIX_H_
#define TOOLS_PROCESS_SERVE_PREFIX_H_

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "reference/spec/prefix_implementation.h"
#include "tools/process/wire_message.h"
#include "tools/process/wire_writer.h"

namespace kvcheck {

// How counters are called in an answer to `observe`.
std::span<const std::pair<std::string_view, int64_t PrefixCounters::*>> PrefixCounterFields();

class PrefixServer {
 public:
  // implementation: outlives the object.
  explicit PrefixServer(PrefixImplementation* implementation) : implementation_(implementation) {}

  // Writes the entries of the answer's map. False: there is no such request.
  // Errors: WireError for a request that has not what it needs; those of the implementation.
  bool Answer(std::string_view name, const WireValue& value, WireWriter& writer);

 private:
  OpResult Start(const WireValue& value, WireWriter& writer);
  OpResult Open(const WireValue& value, WireWriter& writer);
  OpResult Write(const WireValue& value, WireWriter& writer);
  OpResult Call(std::string_view name, const WireValue& value, WireWriter& writer);
  int RequestIn(const WireValue& value, std::string_view key, bool open) const;
  void PutRows(const PrefixRows& rows, int64_t tokens, WireWriter& writer);

  PrefixImplementation* implementation_;
  PrefixSetup setup_;
  bool started_ = false;
  std::array<bool, kRequests> open_{};
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_SERVE_PREFIX_H_
