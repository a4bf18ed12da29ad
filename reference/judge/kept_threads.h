// Threads that stay when their work is done and take the next one: a process that judges a thousand
// small cases does not start thousands of threads, and what a thread has in memory is used again.

#ifndef REFERENCE_JUDGE_KEPT_THREADS_H_
#define REFERENCE_JUDGE_KEPT_THREADS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace kvcheck {

// Runs work() on an idle kept thread, or on a new one. Then, when that thread is idle again and may
// have taken other work already, done() is called on it. Both may be destroyed by it at any time
// after that. work and done throw nothing.
//
// A thread ends only with the process. A forked child has none of its parent's and starts its own.
// False when the system gives no thread: nothing is called.
bool RunOnKeptThread(std::function<void()> work, std::function<void()> done);

// One work on several kept threads.
class KeptThreads {
 public:
  // At most `count`; fewer when the system gives no more. work throws nothing.
  KeptThreads(int64_t count, const std::function<void()>& work);
  // Waits until all have ended it.
  ~KeptThreads();
  KeptThreads(const KeptThreads&) = delete;
  KeptThreads& operator=(const KeptThreads&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int64_t running_ = 0;
};

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_KEPT_THREADS_H_
