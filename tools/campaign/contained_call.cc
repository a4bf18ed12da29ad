#include "tools/campaign/contained_call.h"

#include <unistd.h>

#include <utility>

#include "reference/prefix/folder.h"
#include "tools/campaign/shared_memory.h"

namespace kvcheck {

struct ContainedCall::State {
  ChildLimits limits;
  std::function<Function()> make;
  SharedValue<ItemMark::Shared> mark;
  std::unique_ptr<SupervisedChild> child;
};

ContainedCall::ContainedCall(const ChildLimits& limits, std::function<Function()> make)
    : state_(std::make_unique<State>()) {
  state_->limits = limits;
  state_->limits.on_end = RemovePrefixFoldersOf;
  state_->make = std::move(make);
}

ContainedCall::~ContainedCall() = default;

ContainedCall::Answer ContainedCall::operator()(const Message& argument) {
  State& state = *state_;
  ItemMark::Shared* shared = state.mark.get();
  if (state.child == nullptr) {
    state.child = std::make_unique<SupervisedChild>(
        [&state, shared](ChildChannel& channel) {
          OwnPrefixFolders(getpid());
          const Function function = state.make();
          ItemMark mark(shared, &channel);
          while (const std::optional<Message> request = channel.Receive()) {
            channel.Send(function(*request, mark));
          }
          return 0;
        },
        state.limits);
  }
  shared->step.store(-1);
  Answer answer;
  std::optional<Message> message;
  if (state.child->Send(argument)) message = state.child->Receive();
  if (message) {
    answer.message = std::move(*message);
    return answer;
  }
  const ChildOutcome& outcome = state.child->Finish();
  answer.outcome = outcome.end == ChildEnd::kTimedOut ? Outcome::kTimedOut : Outcome::kCrashed;
  answer.step = shared->step.load();
  answer.reason = LossReason(outcome);
  state.child = nullptr;
  return answer;
}

}  // namespace kvcheck
