#include "optimized/attention/worker_pool.h"

#include <algorithm>
#include <chrono>

namespace kvcheck::optimized {
namespace {

// How long a worker looks for the next call before it sleeps: a few steps of decoding over short
// contexts. Longer would take a core from others.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr int kLooks = 64;  // between two looks at the clock

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// True as soon as `done()`, false after kSpin.
template <typename Done>
bool SpinUntil(Done done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

WorkerPool::WorkerPool(int workers) {
  for (int worker = 1; worker < workers; ++worker) {
    threads_.emplace_back([this, worker] { Serve(worker); });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_release);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Serve(int worker) {
  uint64_t served = 0;
  const auto called = [&] {
    return call_.load(std::memory_order_acquire) != served || stop_.load(std::memory_order_acquire);
  };
  while (true) {
    if (!SpinUntil(called)) {
      std::unique_lock lock(mutex_);
      ++asleep_;
      wake_.wait(lock, called);
      --asleep_;
    }
    uint64_t call = call_.load(std::memory_order_acquire);
    if (call == served) return;  // stop
    inside_.fetch_add(1);
    if (open_.load()) {
      call = call_.load();  // another one may have begun
      if (call != served) work_(context_, worker);
    }
    inside_.fetch_sub(1);
    served = call;
  }
}

void WorkerPool::Run(void (*work)(void*, int), void* context) {
  if (threads_.empty()) return work(context, 0);
  work_ = work;
  context_ = context;
  bool sleepers = false;
  {
    const std::lock_guard lock(mutex_);
    call_.fetch_add(1);
    open_.store(true);
    sleepers = asleep_ > 0;
  }
  if (sleepers) wake_.notify_all();
  work(context, 0);
  open_.store(false);
  const auto done = [&] { return inside_.load() == 0; };
  // The others are at their last piece of work; where there are fewer cores than workers they need
  // this one.
  while (!SpinUntil(done)) std::this_thread::yield();
}

}  // namespace kvcheck::optimized
