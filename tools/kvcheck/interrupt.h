// SIGINT, SIGTERM and SIGHUP (unless it was ignored, as by nohup) as a request to stop: the run
// reports what it has and exits with 130. A second signal of a kind ends the process at once.

#ifndef TOOLS_KVCHECK_INTERRUPT_H_
#define TOOLS_KVCHECK_INTERRUPT_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "tools/corridor/cancel.h"

namespace kvcheck {

void InstallInterruptHandler();
bool IsInterruptRequested();
// What commands hand to their work.
const Cancel& OnInterrupt();

// A thread that waits for a request to stop, and calls give_up if its owner still lives a moment
// after it: the work between two places that ask is then longer than a user waits. Not in a process
// that forks workers which start threads.
class InterruptWatch {
 public:
  static constexpr std::chrono::milliseconds kPatience{400};
  explicit InterruptWatch(std::function<void()> give_up);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  void Watch();
  // False when the watch has ended meanwhile.
  bool Sleep(std::chrono::milliseconds time);

  std::function<void()> give_up_;
  std::mutex mutex_;
  std::condition_variable ended_now_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_INTERRUPT_H_
