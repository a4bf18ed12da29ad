// Attention and codecs in another process (remote_process.h): one request a case.

#ifndef TOOLS_PROCESS_REMOTE_IMPLEMENTATION_H_
#define TOOLS_PROCESS_REMOTE_IMPLEMENTATION_H_

#include <memory>
#include <optional>
#include <string>

#include "reference/spec/implementation.h"
#include "tools/process/remote_process.h"

namespace kvcheck {

class RemoteImplementation : public Implementation {
 public:
  // plan, profile: what the case is judged under, for the process to
  // know.
  RemoteImplementation(std::shared_ptr<RemoteProcess> process, Plan plan, Profile profile)
      : process_(std::move(process)), plan_(std::move(plan)), profile_(profile) {}

  Capabilities GetCapabilities() const override;
  // Errors: RemoteLoss; kUnsupported for inputs that no frame holds.
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override;
  const Plan* AnswerPlan() const override { return answer_plan_ ? &*answer_plan_ : nullptr; }
  const Profile* AnswerProfile() const override {
    return answer_profile_ ? &*answer_profile_ : nullptr;
  }
  std::string Reason() const override { return reason_; }

 private:
  std::shared_ptr<RemoteProcess> process_;
  Plan plan_;
  Profile profile_;
  std::optional<Plan> answer_plan_;
  std::optional<Profile> answer_profile_;
  std::string reason_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REMOTE_IMPLEMENTATION_H_
