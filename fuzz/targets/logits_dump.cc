// Whatever bytes arrive as a dump of logits (safetensors, llama-perplexity's base, the JSON of
// servers): refused with a reason that names the file, or read position by position, each with
// tokens in order, a number beside each, and errors that are numbers; whose probabilities sum to no
// more than 1, as far as these errors leave it open; and there are no more positions than bytes.

#include "tools/agree/logits_dump.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "reference/spec/error.h"
#include "tools/agree/distribution_check.h"

namespace {

using namespace kvcheck;

// A file that has no name but that of its descriptor, since dumps are read from files.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(memfd_create("dump", 0)) {
    KVCHECK_CHECK(descriptor_ >= 0, "no memory file");
    KVCHECK_CHECK(write(descriptor_, data, size) == static_cast<ssize_t>(size), "a short write");
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// Term by term, as distribution_check.h has it.
void CheckSum(const TokenDistribution& position) {
  const double e = position.error + position.rounding;
  KVCHECK_CHECK(e >= 0 && position.sum_error >= 0, "roundings that are none");
  double sure = 0;
  for (const double log_p : position.log_p) {
    if (log_p > position.floor) sure += std::exp(log_p - e);
  }
  // The sum in double is off by less than a unit of f32 for each of its terms.
  const double own = static_cast<double>(position.size() + 1) * 0x1p-24;
  KVCHECK_CHECK(sure <= 1 + position.sum_error + own, "probabilities above 1");
}

void Check(const TokenDistribution& position) {
  const size_t listed = position.complete ? 0 : position.size();
  KVCHECK_CHECK(position.size() > 0 && position.tokens.size() == listed, "tokens without numbers");
  for (size_t i = 0; i < position.size(); ++i) {
    KVCHECK_CHECK(i == 0 || position.Token(i) > position.Token(i - 1), "tokens out of order");
    KVCHECK_CHECK(position.Find(position.Token(i)) == i, "a token that is not found");
  }
  KVCHECK_CHECK(position.Token(0) >= 0, "a token that is none");
  KVCHECK_CHECK(position.error >= 0 && std::isfinite(position.error), "an error that is none");
  KVCHECK_CHECK(!position.next || *position.next >= 0, "a token that is none");
  KVCHECK_CHECK(!position.text || *position.text >= 0, "a text that is none");
  if (IsFinite(position)) CheckSum(position);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(data, size);
  try {
    const std::unique_ptr<LogitsDump> dump = OpenLogitsDump(file.path());
    KVCHECK_CHECK(!dump->Description().empty(), "a dump that does not say what it is");
    TokenDistribution position;
    size_t positions = 0;
    while (dump->Read(&position)) {
      Check(position);
      KVCHECK_CHECK(++positions <= size, "more positions than bytes");
    }
  } catch (const Error& error) {
    // Unsupported: a type of safetensors that kvcheck does not have.
    const bool refused = error.code() == ErrorCode::kUnreadableFile ||
                         error.code() == ErrorCode::kMissingData ||
                         error.code() == ErrorCode::kUnsupported;
    KVCHECK_CHECK(refused && !error.message().empty(), "a refusal of another kind");
    KVCHECK_CHECK(error.context().find(file.path()) != std::string::npos,
                  "a refusal that does not say where");
  }
  return 0;
}
