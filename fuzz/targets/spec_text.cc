// Whatever bytes arrive as the text of a case, a plan or a profile: a parser refuses them with an
// Error, or its print of what it accepted parses back to the equal value. The guided search beside
// tests/reference/spec/mutation_test.cc, whose changes of valid lines are fixed.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace {

// nullopt: refused, with a reason. Whatever else is thrown is a bug, and ends the run.
template <typename T>
std::optional<T> Accepted(T (*parse)(std::string_view), std::string_view text) {
  try {
    return parse(text);
  } catch (const kvcheck::Error& error) {
    KVCHECK_CHECK(!error.message().empty(), "a refusal without a reason");
    return std::nullopt;
  }
}

template <typename T>
void Try(T (*parse)(std::string_view), std::string_view text) {
  const std::optional<T> value = Accepted(parse, text);
  // An Error here is uncaught: the print of what was accepted must be accepted.
  if (value) KVCHECK_CHECK(parse(Print(*value)) == *value, "the print parses to another value");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Try(kvcheck::ParseCase, text);
  Try(kvcheck::ParsePlan, text);
  Try(kvcheck::ParseProfile, text);
  return 0;
}
