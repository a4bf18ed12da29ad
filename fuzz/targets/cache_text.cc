// Whatever bytes arrive as the text of a trace, in either spelling: refused with an Error that says
// where, or what is accepted prints to texts, one line and many, that parse back to the equal
// trace.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reference/spec/error.h"
#include "reference/spec/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvcheck;
  std::optional<CacheCase> c;
  try {
    c = ParseCacheCase({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    KVCHECK_CHECK(!error.message().empty(), "a refusal without a reason");
    return 0;
  }
  // An Error here is uncaught: the print of what was accepted must be accepted.
  KVCHECK_CHECK(ParseCacheCase(Print(*c)) == *c, "one line parses to another trace");
  KVCHECK_CHECK(ParseCacheCase(PrintLines(*c)) == *c, "many lines parse to another trace");
  return 0;
}
