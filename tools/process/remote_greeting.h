// What an implementation in another process says about itself (the handshake of protocol.md).

#ifndef TOOLS_PROCESS_REMOTE_GREETING_H_
#define TOOLS_PROCESS_REMOTE_GREETING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/attention_space.h"
#include "reference/spec/cache_profile.h"
#include "reference/spec/cache_space.h"
#include "reference/spec/codec_space.h"
#include "reference/spec/plan.h"
#include "reference/spec/prefix_profile.h"
#include "reference/spec/prefix_space.h"
#include "reference/spec/profile.h"
#include "tools/process/wire_message.h"
#include "tools/process/wire_writer.h"

namespace kvcheck {

inline constexpr int64_t kProtocolVersion = 1;

struct Greeting {
  std::string name;
  std::string version;
  std::vector<std::string> kinds;  // "cache", "attention", "codec", "prefix"
  CacheProfile cache_profile;
  PrefixProfile prefix_profile;
  Profile profile;
  Plan plan;              // base=stranger where it says nothing
  std::string plan_text;  // as it was said; "": not
  std::vector<CacheSpace> cache_spaces;
  std::vector<AttentionSpace> attention_spaces;
  std::vector<CodecSpace> codec_spaces;
  std::vector<PrefixSpace> prefix_spaces;
  bool ids_alone = false;             // of kind prefix: a manager of blocks, without content
  std::vector<std::string> warnings;  // of what is judged, said before the first verdict

  bool Has(std::string_view kind) const;
  bool operator==(const Greeting&) const = default;
};

// Errors: WireError, also for a text that does not parse and for another version of the protocol.
Greeting ReadGreeting(const WireValue& answer);
// As ReadGreeting reads it, without spaces.
void WriteGreeting(const Greeting& greeting, WireWriter& writer);

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REMOTE_GREETING_H_
