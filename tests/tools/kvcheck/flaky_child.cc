// A child of the process protocol whose codec is wrong in every second answer, the first one
// included: what a race looks like to whoever asks again. With the argument "zeros", a child whose
// attention is 0 everywhere, under a plan that promises next to nothing.

#include <memory>
#include <string_view>
#include <utility>

#include "reference/spec/plan.h"
#include "tools/corridor/implementations.h"
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
      // The last byte: sign and exponent, which no bound allows.
      if (wrong && !tensor.bytes.empty()) tensor.bytes.back() ^= std::byte{0x55};
      sink.Declare(name, tensor.dtype, tensor.shape);
      sink.Write(name, 0, tensor.bytes);
    }
    return outcome;
  }
};

constexpr const char* kVacuousPlan = "base=stranger exp_error=0.5";

class Zeros : public Implementation {
 public:
  Capabilities GetCapabilities() const override {
    return {"zeros", "1", {"attention"}, ParsePlan(kVacuousPlan), {}};
  }
  RunOutcome Run(const Case& c, const TensorMap&, Sink& sink) override {
    if (OutputSpecs(c).size() > 1) return RunOutcome::kUnsupported;  // no lse
    for (const auto& [name, spec] : OutputSpecs(c)) {
      const Tensor zeros(spec.dtype, spec.shape);
      sink.Declare(name, spec.dtype, spec.shape);
      sink.Write(name, 0, zeros.bytes);
    }
    return RunOutcome::kAnswered;
  }
  const Plan* AnswerPlan() const override { return &plan_; }

 private:
  Plan plan_ = ParsePlan(kVacuousPlan);
};

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  kvcheck::Served served;
  if (argc > 1 && argv[1] == std::string_view("zeros")) {
    served.greeting.name = "zeros";
    served.greeting.version = "1";
    served.greeting.kinds = {"attention"};
    served.greeting.plan = kvcheck::ParsePlan(kvcheck::kVacuousPlan);
    served.make = [](const kvcheck::Case&, const kvcheck::Plan&, const kvcheck::Profile&) {
      return std::make_unique<kvcheck::Zeros>();
    };
    return kvcheck::Serve(std::move(served), 0, 1);
  }
  served.greeting.name = "flaky";
  served.greeting.version = "1";
  served.greeting.kinds = {"codec"};
  served.greeting.plan = kvcheck::ParsePlan("base=stranger");
  served.make = [](const kvcheck::Case&, const kvcheck::Plan&, const kvcheck::Profile& profile) {
    return std::make_unique<kvcheck::FlakyCodec>(profile);
  };
  return kvcheck::Serve(std::move(served), 0, 1);
}
