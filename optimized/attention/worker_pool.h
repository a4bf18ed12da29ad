// Threads that wait for the next call: a step of decoding over 1K tokens takes less time than it
// takes to start one. Whoever calls does not wait for threads that come late, where another program
// has their core: what they would have done is done.

#ifndef OPTIMIZED_ATTENTION_WORKER_POOL_H_
#define OPTIMIZED_ATTENTION_WORKER_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace kvcheck::optimized {

class WorkerPool {
 public:
  // workers: that run a call, the calling thread among them; at least 1.
  explicit WorkerPool(int workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int workers() const { return static_cast<int>(threads_.size()) + 1; }
  // work(context, worker) on worker 0, the caller, and once at most on each of the others that come
  // before the caller's has returned; returns when all have returned. So work takes what there is
  // to do piece by piece until nothing is left. It does not throw. One call at a time.
  void Run(void (*work)(void* context, int worker), void* context);

 private:
  void Serve(int worker);

  std::vector<std::thread> threads_;
  void (*work_)(void*, int) = nullptr;
  void* context_ = nullptr;
  std::atomic<uint64_t> call_{0};  // counts calls; written under the mutex
  // A worker is counted before it looks whether the call is open, and the caller closes the call
  // before it looks whether one is counted: in one order of all of these, either sees the other.
  std::atomic<bool> open_{false};
  std::atomic<int> inside_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  int asleep_ = 0;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_WORKER_POOL_H_
