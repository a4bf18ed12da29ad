// Threads that spin, then sleep until the next call: a decode step over 1K tokens takes less time
// than starting a thread. The caller does not wait for workers that wake late, as where another
// program has their core: their share is done by the others.

#ifndef OPTIMIZED_ATTENTION_THREAD_POOL_H_
#define OPTIMIZED_ATTENTION_THREAD_POOL_H_

#include <memory>

namespace kvcheck::optimized {

class ThreadPool {
 public:
  // workers: that run a call, the calling thread among them; at least 1. Throws std::system_error
  // where the system has no more threads, and leaves none running.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const { return workers_; }
  // work(context, worker) on worker 0, the caller, and once at most on each of the others that come
  // before the caller's has returned; returns when all have returned. So work takes item by item
  // until none is left. It must not throw. One call at a time.
  // In a process that was forked from the pool's own the threads are missing, and the caller works
  // alone.
  void Run(void (*work)(void* context, int worker), void* context);

 private:
  // What the threads share. A forked process gets a copy, and threads that are not there: it must
  // not touch it.
  struct Shared;
  void Stop();

  int workers_ = 1;
  unsigned forks_ = 0;  // of this process and its parents when the threads were made
  std::unique_ptr<Shared> shared_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_THREAD_POOL_H_
