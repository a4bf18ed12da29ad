#include "optimized/attention/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "optimized/attention/pool_protocol.h"

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

// Counted in the child.
std::atomic<unsigned> forks{0};

unsigned ForksSoFar() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace

// Runs the protocol on real threads. It has a name because ThreadPool::Shared holds it.
struct PoolThreads {
  // Its wait is the system's own on an address: a condition variable of glibc before 2.41 can lose
  // a wake-up (bug 25847), and a fork copies a mutex that nothing unlocks.
  using Variable = std::atomic<unsigned>;

  // False after kSpin.
  template <typename Done>
  static bool SpinUntil(Done done) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < kLooks; ++i) {
        if (done()) return true;
        Pause();
      }
    } while (std::chrono::steady_clock::now() < end);
    return done();
  }

  static void AwaitZero(const Variable& variable) {
    // Where there are fewer cores than workers they need this one.
    while (!SpinUntil([&] { return variable.load() == 0; })) std::this_thread::yield();
  }
};

struct ThreadPool::Shared {
  PoolProtocol<PoolThreads> protocol;
  void (*work)(void* context, int worker) = nullptr;
  void* context = nullptr;
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int workers) : workers_(workers), forks_(ForksSoFar()) {
  if (workers <= 1) return;
  shared_ = std::make_unique<Shared>();
  Shared* shared = shared_.get();
  try {
    shared->threads.reserve(static_cast<size_t>(workers - 1));
    for (int worker = 1; worker < workers; ++worker) {
      shared->threads.emplace_back([shared, worker] {
        shared->protocol.Serve([&] { shared->work(shared->context, worker); });
      });
    }
  } catch (...) {
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (shared_ == nullptr) return;
  if (ForksSoFar() == forks_) {
    Stop();
  } else {
    // Neither its threads nor what they wait on can be destroyed here.
    [[maybe_unused]] auto* kept = shared_.release();
  }
}

void ThreadPool::Stop() {
  shared_->protocol.Stop();
  for (std::thread& thread : shared_->threads) thread.join();
}

void ThreadPool::Run(void (*work)(void*, int), void* context) {
  if (shared_ == nullptr || ForksSoFar() != forks_) return work(context, 0);
  shared_->work = work;
  shared_->context = context;
  shared_->protocol.Run([&] { work(context, 0); });
}

}  // namespace kvcheck::optimized
