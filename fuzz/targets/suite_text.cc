// Whatever bytes arrive as a file of cases or of known failures: a parser refuses them with an
// Error that says where, or what it accepted prints as a file that is read back to the same cases.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "reference/spec/error.h"
#include "tools/campaign/known_failures.h"
#include "tools/corridor/cases_file.h"

namespace {

void TryCases(std::string_view text) {
  std::vector<kvcheck::CaseEntry> cases;
  try {
    cases = kvcheck::ParseCases(text, "file");
  } catch (const kvcheck::Error& error) {
    KVCHECK_CHECK(!error.message().empty(), "a refusal without a reason");
    KVCHECK_CHECK(error.context().starts_with("file"), "a refusal that does not say where");
    return;
  }
  for (const kvcheck::CaseEntry& entry : cases) {
    // An Error here is uncaught: the print of what was accepted must be accepted.
    const kvcheck::CaseEntry again = kvcheck::ParseCases(Print(entry), "print").front();
    KVCHECK_CHECK(again.c == entry.c && again.name == entry.name && again.reason == entry.reason &&
                      again.plan == entry.plan && again.profile == entry.profile &&
                      again.implementation == entry.implementation,
                  "the print parses to another case");
  }
}

void TryKnownFailures(std::string_view text) {
  try {
    const kvcheck::KnownFailures known(text, "file");
    for (const kvcheck::KnownFailure& entry : known.entries()) {
      KVCHECK_CHECK(!entry.signature.empty() && entry.expires.size() == 10, "an incomplete line");
    }
  } catch (const kvcheck::Error& error) {
    KVCHECK_CHECK(error.context().starts_with("file:"), "a refusal that does not say where");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  TryCases(text);
  TryKnownFailures(text);
  return 0;
}
