// A simulated kernel: an Implementation that evaluates the definition under any plan, every
// rounding explicit, with any one rule replaced. Clean ones measure false alarms of the bound,
// faulty ones its power. It is the meaning of a plan in code.

#ifndef REFERENCE_ATTENTION_SIMULATED_KERNEL_H_
#define REFERENCE_ATTENTION_SIMULATED_KERNEL_H_

#include <string>
#include <vector>

#include "reference/attention/arithmetic.h"
#include "reference/attention/head_data.h"
#include "reference/attention/rules.h"
#include "reference/spec/implementation.h"

namespace kvcheck {

class SimulatedKernel : public Implementation {
 public:
  // states_plan: the plan is its own, whatever it is asked under.
  SimulatedKernel(Plan plan, Profile profile, AttentionRules rules = {}, bool states_plan = false);

  Capabilities GetCapabilities() const override;
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override;
  // As Run, under a plan that `Resolve` gave (arithmetic.h), which is not resolved again: what is
  // filled in covers several kernels, and as declarations its fields may contradict each other.
  RunOutcome RunResolved(const Plan& plan, const AttentionCase& c, const TensorMap& inputs,
                         Sink& sink) const;
  // How often the replaced rule made a difference.
  int64_t Hits() const { return rules_.hits->load(); }

 private:
  Plan plan_;
  Profile profile_;
  AttentionRules rules_;
  bool states_plan_;
};

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_SIMULATED_KERNEL_H_
