#include "optimized/attention/worker_pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace kvcheck::optimized {
namespace {

// How long a worker spins before it sleeps: a few decode steps over short contexts. Longer would
// take a core from others.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr int kLooks = 64;  // between two reads of the clock

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

// Counted in the child.
std::atomic<unsigned> forks{0};

unsigned ForksSoFar() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

struct WorkerPool::Shared {
  void Serve(int worker);
  void Run(void (*of_call)(void*, int), void* context_of_call);

  std::vector<std::thread> threads;
  void (*work)(void*, int) = nullptr;
  void* context = nullptr;
  std::atomic<uint64_t> call{0};  // counts calls; written under the mutex
  // A worker is counted before it looks whether the call is open, and the caller closes the call
  // before it looks whether one is counted: in one order of all of these, either sees the other.
  std::atomic<bool> open{false};
  std::atomic<int> inside{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;
  int asleep = 0;
};

WorkerPool::WorkerPool(int workers) : workers_(workers), forks_(ForksSoFar()) {
  if (workers <= 1) return;
  shared_ = std::make_unique<Shared>();
  Shared* shared = shared_.get();
  try {
    shared->threads.reserve(static_cast<size_t>(workers - 1));
    for (int worker = 1; worker < workers; ++worker) {
      shared->threads.emplace_back([shared, worker] { shared->Serve(worker); });
    }
  } catch (...) {
    Stop();
    throw;
  }
}

WorkerPool::~WorkerPool() {
  if (shared_ == nullptr) return;
  if (ForksSoFar() == forks_) {
    Stop();
  } else {
    // Neither its threads nor what they wait on can be destroyed here.
    [[maybe_unused]] auto* kept = shared_.release();
  }
}

void WorkerPool::Stop() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop.store(true, std::memory_order_release);
  }
  shared_->wake.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

void WorkerPool::Run(void (*work)(void*, int), void* context) {
  if (shared_ == nullptr || ForksSoFar() != forks_) return work(context, 0);
  shared_->Run(work, context);
}

void WorkerPool::Shared::Serve(int worker) {
  uint64_t served = 0;
  const auto called = [&] {
    return call.load(std::memory_order_acquire) != served || stop.load(std::memory_order_acquire);
  };
  while (true) {
    if (!SpinUntil(called)) {
      std::unique_lock lock(mutex);
      ++asleep;
      wake.wait(lock, called);
      --asleep;
    }
    uint64_t now = call.load(std::memory_order_acquire);
    if (now == served) return;  // stop
    inside.fetch_add(1);
    if (open.load()) {
      now = call.load();  // another one may have begun
      if (now != served) work(context, worker);
    }
    inside.fetch_sub(1);
    served = now;
  }
}

void WorkerPool::Shared::Run(void (*of_call)(void*, int), void* context_of_call) {
  work = of_call;
  context = context_of_call;
  bool sleepers = false;
  {
    const std::lock_guard lock(mutex);
    call.fetch_add(1);
    open.store(true);
    sleepers = asleep > 0;
  }
  if (sleepers) wake.notify_all();
  of_call(context_of_call, 0);
  open.store(false);
  const auto done = [&] { return inside.load() == 0; };
  // The others are at their last item; where there are fewer cores than workers they need
  // this one.
  while (!SpinUntil(done)) std::this_thread::yield();
}

}  // namespace kvcheck::optimized
