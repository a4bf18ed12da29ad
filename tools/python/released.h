// Work without the GIL that Ctrl-C ends within a second. It runs in a kept thread
// (reference/judge/kept_threads.h) while the thread that called waits and asks Python about
// signals. Work that comes to no place where it stops, in a moment after Ctrl-C, is left to itself
// until it does: it owns all that it reads.

#ifndef TOOLS_PYTHON_RELEASED_H_
#define TOOLS_PYTHON_RELEASED_H_

#include <nanobind/nanobind.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "reference/judge/kept_threads.h"

namespace kvcheck {

// Threads that were left to themselves. The interpreter waits for them at its end, since they read
// memory that ends with it.
class LeftWork {
 public:
  void Begin() {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    --running_;
    ended_now_.notify_all();
  }
  // Called without the GIL.
  void Wait() {
    std::unique_lock lock(mutex_);
    ended_now_.wait(lock, [this] { return running_ == 0; });
  }
  int running() {
    const std::lock_guard lock(mutex_);
    return running_;
  }
  static LeftWork& All() {
    static LeftWork* const all = new LeftWork;  // outlives every thread
    return *all;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_now_;
  int running_ = 0;
};

// work(cancelled): called once; `cancelled` becomes true. It owns what it reads, is destroyed with
// the GIL, and throws where it was cancelled. The exception of Ctrl-C is the one that Python has.
template <typename Work>
auto Released(Work work) {
  namespace nb = nanobind;
  constexpr std::chrono::milliseconds kBetweenSignals{50};
  constexpr std::chrono::milliseconds kPatience{400};
  using Cancelled = std::function<bool()>;
  using Result = decltype(work(Cancelled()));
  struct Task {
    explicit Task(Work given) : work(std::move(given)) {}
    std::optional<Work> work;
    std::optional<Result> result;
    std::exception_ptr error;
    std::atomic<bool> cancelled = false;
    std::mutex mutex;
    std::condition_variable done_now;
    bool done = false;
    bool left = false;
  };
  const auto task = std::make_shared<Task>(std::move(work));
  const bool is_started = RunOnKeptThread(
      [task] {
        try {
          // Of the task, which ends after the work.
          task->result.emplace((*task->work)([raw = task.get()] { return raw->cancelled.load(); }));
        } catch (...) {
          task->error = std::current_exception();
        }
      },
      [task] {
        std::unique_lock lock(task->mutex);
        task->done = true;
        task->done_now.notify_all();
        if (!task->left) return;
        lock.unlock();
        {
          const nb::gil_scoped_acquire gil;
          task->work.reset();
        }
        LeftWork::All().End();
      });
  if (!is_started)
    throw std::system_error(EAGAIN, std::generic_category(), "no thread to judge by");
  const auto is_done = [&](std::chrono::milliseconds time) {
    const nb::gil_scoped_release released;
    std::unique_lock lock(task->mutex);
    return task->done_now.wait_for(lock, time, [&] { return task->done; });
  };
  bool interrupted = false;
  while (!is_done(kBetweenSignals)) {
    interrupted = PyErr_CheckSignals() != 0;
    if (interrupted) break;
  }
  if (interrupted) {
    task->cancelled = true;
    if (!is_done(kPatience)) {
      const std::lock_guard lock(task->mutex);
      task->left = !task->done;
      if (task->left) LeftWork::All().Begin();
    }
    if (task->left) throw nb::python_error();
  }
  task->work.reset();  // here, where the GIL is
  if (interrupted) throw nb::python_error();
  if (task->error) std::rethrow_exception(task->error);
  return *std::move(task->result);
}

}  // namespace kvcheck

#endif  // TOOLS_PYTHON_RELEASED_H_
