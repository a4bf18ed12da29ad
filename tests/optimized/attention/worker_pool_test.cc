// The worker pool: every worker runs every call once, whether it sleeps or looks for work.

#include "optimized/attention/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace kvcheck {
namespace {

struct Calls {
  explicit Calls(int workers) : of(static_cast<size_t>(workers)) {}
  std::vector<std::atomic<int>> of;
  int written = 0;  // by the caller before a call, read by workers
  std::atomic<int> seen{0};
};

void Count(void* context, int worker) {
  auto* calls = static_cast<Calls*>(context);
  calls->of[static_cast<size_t>(worker)].fetch_add(1);
  calls->seen.fetch_add(calls->written);
}

TEST(WorkerPool, RunsEveryCallOnceOnEveryWorker) {
  for (const int workers : {1, 2, 7}) {
    optimized::WorkerPool pool(workers);
    EXPECT_EQ(pool.workers(), workers);
    Calls calls(workers);
    constexpr int kCalls = 200;
    int expected = 0;
    for (int call = 0; call < kCalls; ++call) {
      calls.written = call;
      expected += call * workers;
      pool.Run(Count, &calls);
      ASSERT_EQ(calls.seen.load(), expected) << "call " << call << " of " << workers;
    }
    for (const auto& count : calls.of) EXPECT_EQ(count.load(), kCalls);
  }
}

TEST(WorkerPool, WakesWorkersThatSleep) {
  optimized::WorkerPool pool(3);
  Calls calls(3);
  for (int call = 0; call < 5; ++call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.Run(Count, &calls);
  }
  for (const auto& count : calls.of) EXPECT_EQ(count.load(), 5);
}

TEST(WorkerPool, EndsWithoutACall) {
  for (int i = 0; i < 20; ++i) optimized::WorkerPool pool(4);
}

}  // namespace
}  // namespace kvcheck
