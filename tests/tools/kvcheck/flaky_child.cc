// A child of the process protocol whose codec is wrong in every second answer, the first one
// included: what a race looks like to whoever asks again.

#include <memory>
#include <utility>

#include "reference/spec/plan.h"
#include "tools/kvcheck/implementations.h"
#include "tools/process/serve.h"

namespace kvcheck {
namespace {

class FlakyCodec : public ReferenceCodec {
 public:
  explicit FlakyCodec(const Profile& profile) : ReferenceCodec(profile) {}

  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override {
    static int answers = 0;
    MemorySink right;
    const RunOutcome outcome = ReferenceCodec::Run(c, inputs, right);
    const bool wrong = ++answers % 2 == 1;
    for (auto& [name, tensor] : right.tensors()) {
      if (wrong && !tensor.bytes.empty()) tensor.bytes[0] ^= std::byte{0x55};
      sink.Declare(name, tensor.dtype, tensor.shape);
      sink.Write(name, 0, tensor.bytes);
    }
    return outcome;
  }
};

}  // namespace
}  // namespace kvcheck

int main() {
  kvcheck::Served served;
  served.greeting.name = "flaky";
  served.greeting.version = "1";
  served.greeting.kinds = {"codec"};
  served.greeting.plan = kvcheck::ParsePlan("base=stranger");
  served.make = [](const kvcheck::Case&, const kvcheck::Plan&, const kvcheck::Profile& profile) {
    return std::make_unique<kvcheck::FlakyCodec>(profile);
  };
  return kvcheck::Serve(std::move(served), 0, 1);
}
