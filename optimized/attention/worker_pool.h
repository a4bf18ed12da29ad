// Threads that wait for the next call: a step of decoding over 1K tokens takes less time than it
// takes to start one.

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
  // work(context, worker) on every worker, 0 the caller; returns when all have returned. work does
  // not throw. One call at a time.
  void Run(void (*work)(void* context, int worker), void* context);

 private:
  void Serve(int worker);

  std::vector<std::thread> threads_;
  void (*work_)(void*, int) = nullptr;
  void* context_ = nullptr;
  std::atomic<uint64_t> call_{0};  // counts calls; written under the mutex
  std::atomic<int> busy_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  int asleep_ = 0;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_WORKER_POOL_H_
