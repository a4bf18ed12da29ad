// SIGINT, SIGTERM and SIGHUP (unless it was ignored, as by nohup) as a request to stop: the run
// reports what it has and exits with 130. A second signal of a kind ends the process at once.

#ifndef TOOLS_KVCHECK_INTERRUPT_H_
#define TOOLS_KVCHECK_INTERRUPT_H_

#include <functional>

namespace kvcheck {

// Thrown out of work that was cut short. Not an error: the report says that it is partial.
struct Interrupted {};

void InstallInterruptHandler();
bool IsInterruptRequested();
// Called wherever work can be cut short.
void ThrowIfInterrupted();

// While it lives, ThrowIfInterrupted calls the function too: a sign of life of long work. Of one
// thread: for a supervised worker, which has no other.
class CheckpointHook {
 public:
  explicit CheckpointHook(std::function<void()> function);
  ~CheckpointHook();
  CheckpointHook(const CheckpointHook&) = delete;
  CheckpointHook& operator=(const CheckpointHook&) = delete;

 private:
  std::function<void()> function_;
};

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_INTERRUPT_H_
