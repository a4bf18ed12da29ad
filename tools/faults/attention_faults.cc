#include "tools/faults/attention_faults.h"

#include "reference/attention/arithmetic.h"
#include "reference/attention/simulated_kernel.h"

namespace kvcheck {
namespace {

// The simulated kernel, asked something else.
class MistakenKernel : public Implementation {
 public:
  MistakenKernel(const AttentionFault& fault, const Plan& plan, const Profile& profile)
      : fault_(fault), plan_(plan), profile_(profile) {}

  Capabilities GetCapabilities() const override {
    return {"fault", "1", {"attention"}, plan_, profile_};
  }
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override {
    const auto* asked = std::get_if<AttentionCase>(&c);
    if (asked == nullptr) return RunOutcome::kUnsupported;
    AttentionQuestion question = {*asked, Resolve(plan_, profile_, *asked).plan, profile_, inputs};
    fault_.change(&question);
    SimulatedKernel kernel(question.plan, question.profile);
    return kernel.RunResolved(question.plan, question.c, question.inputs, sink);
  }

 private:
  const AttentionFault& fault_;
  Plan plan_;
  Profile profile_;
};

}  // namespace

const std::vector<AttentionFault>& AttentionFaults() {
  static const std::vector<AttentionFault> faults = [] {
    std::vector<AttentionFault> all;
    for (const auto& part : {DetectionFaults(), MaskFaults(), NumberFaults(), OperandFaults()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return faults;
}

const AttentionFault* FindAttentionFault(std::string_view id) {
  for (const AttentionFault& fault : AttentionFaults()) {
    if (fault.id == id) return &fault;
  }
  return nullptr;
}

std::unique_ptr<Implementation> MakeFaultyAttention(const AttentionFault& fault, const Plan& plan,
                                                    const Profile& profile) {
  if (fault.rules == nullptr) return std::make_unique<MistakenKernel>(fault, plan, profile);
  return std::make_unique<SimulatedKernel>(plan, profile, fault.rules());
}

}  // namespace kvcheck
