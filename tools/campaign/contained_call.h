// A function of messages that is called in a supervised child, one call after the other: a call
// that crashes or hangs is a value, and the next call has a new child.

#ifndef TOOLS_CAMPAIGN_CONTAINED_CALL_H_
#define TOOLS_CAMPAIGN_CONTAINED_CALL_H_

#include <functional>
#include <memory>
#include <string>

#include "tools/campaign/process_pool.h"

namespace kvcheck {

class ContainedCall {
 public:
  // In the child. The mark is of item 0; each call may say its steps.
  using Function = std::function<Message(const Message&, ItemMark&)>;

  struct Answer {
    Message message;                   // empty where the call was lost
    Outcome outcome = Outcome::kPass;  // kCrashed, kTimedOut
    int64_t step = -1;
    std::string reason;
    bool IsLost() const { return outcome != Outcome::kPass; }
  };

  // make: called once in each child.
  ContainedCall(const ChildLimits& limits, std::function<Function()> make);
  ~ContainedCall();
  ContainedCall(const ContainedCall&) = delete;
  ContainedCall& operator=(const ContainedCall&) = delete;

  // Precondition: the argument is not empty. Errors: kUnsupported when no process can be made.
  Answer operator()(const Message& argument);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_CONTAINED_CALL_H_
