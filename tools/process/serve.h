// The child's side of the process protocol (protocol.md), for implementations that live in this
// program: with it the protocol is tested end to end, and a C++ library becomes an adapter.

#ifndef TOOLS_PROCESS_SERVE_H_
#define TOOLS_PROCESS_SERVE_H_

#include <functional>
#include <memory>
#include <optional>

#include "reference/spec/cache_implementation.h"
#include "reference/spec/implementation.h"
#include "reference/spec/prefix_implementation.h"
#include "tools/process/remote_greeting.h"

namespace kvcheck {

struct Served {
  Greeting greeting;
  std::unique_ptr<CacheFactory> caches;              // null: none
  std::unique_ptr<PrefixImplementation> prefixes{};  // null: none
  // Who answers a case of attention or of a codec under this plan and profile; null: nobody.
  std::function<std::unique_ptr<Implementation>(const Case&, const Plan&, const Profile&)> make;
  // Of cases, where the greeting's is not what they follow; every answer says so.
  std::optional<Profile> case_profile;
};

// Answers requests from one descriptor on another until there are no more. Gives an exit code: 0,
// or 2 when what arrived is no request, with a line on standard error.
int Serve(Served served, int input, int output);

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_SERVE_H_
