#include "tools/kvcheck/interrupt.h"

#include <signal.h>

#include <atomic>
#include <utility>

namespace kvcheck {
namespace {

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void Request(int) { requested.store(true, std::memory_order_relaxed); }

}  // namespace

void InstallInterruptHandler() {
  struct sigaction action = {};
  action.sa_handler = Request;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Under nohup the end of the terminal is to be ignored.
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

bool IsInterruptRequested() { return requested.load(std::memory_order_relaxed); }

const Cancel& OnInterrupt() {
  static const Cancel kOnInterrupt(IsInterruptRequested);
  return kOnInterrupt;
}

InterruptWatch::InterruptWatch(std::function<void()> give_up)
    : give_up_(std::move(give_up)), thread_([this] { Watch(); }) {}

InterruptWatch::~InterruptWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_now_.notify_all();
  thread_.join();
}

bool InterruptWatch::Sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !ended_now_.wait_for(lock, time, [this] { return ended_; });
}

void InterruptWatch::Watch() {
  constexpr std::chrono::milliseconds kBetweenLooks{50};
  while (!IsInterruptRequested()) {
    if (!Sleep(kBetweenLooks)) return;
  }
  if (Sleep(kPatience)) give_up_();
}

}  // namespace kvcheck
