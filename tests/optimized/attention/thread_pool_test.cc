// The worker pool on real threads: who runs a call, how often, and never after it has returned.
// That no wake-up is lost in any order is in pool_protocol_test.cc. Nothing here depends on how
// long something takes: a thread that never comes, and a child that hangs, end with ctest's limit.

#include "optimized/attention/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace kvcheck {
namespace {

// One call: who was in it.
struct Call {
  explicit Call(int workers) : of(static_cast<size_t>(workers)) {}
  std::vector<std::atomic<int>> of;
  std::atomic<bool> returned{false};
  std::atomic<int> late{0};  // ran after Run had returned
  int wanted = 1;            // the caller stays until so many have come
  int Came() const {
    int came = 0;
    for (const auto& count : of) came += count.load() > 0 ? 1 : 0;
    return came;
  }
};

void Note(void* context, int worker) {
  auto* call = static_cast<Call*>(context);
  if (call->returned.load()) call->late.fetch_add(1);
  call->of[static_cast<size_t>(worker)].fetch_add(1);
  while (worker == 0 && call->Came() < call->wanted) std::this_thread::yield();
}

TEST(ThreadPool, RunsACallOnTheCallerAndOnceAtMostOnEachWorker) {
  for (const int workers : {1, 2, 7}) {
    optimized::ThreadPool pool(workers);
    EXPECT_EQ(pool.workers(), workers);
    std::vector<std::unique_ptr<Call>> calls;  // so that latecomers would still find theirs
    for (int i = 0; i < 300; ++i) {
      Call& call = *calls.emplace_back(std::make_unique<Call>(workers));
      pool.Run(Note, &call);
      call.returned.store(true);
      ASSERT_EQ(call.of[0].load(), 1);
      for (const auto& count : call.of) ASSERT_LE(count.load(), 1);
    }
    for (const auto& call : calls) ASSERT_EQ(call->late.load(), 0);
  }
}

TEST(ThreadPool, WakesEveryWorkerWhetherItSleepsOrSpins) {
  for (const int pause_ms : {0, 20}) {
    optimized::ThreadPool pool(3);
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      Call call(3);
      call.wanted = 3;
      pool.Run(Note, &call);
      EXPECT_EQ(call.Came(), 3);
    }
  }
}

TEST(ThreadPool, EndsWithoutACall) {
  for (int i = 0; i < 20; ++i) optimized::ThreadPool pool(4);
}

int StatusOf(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child ? status : -1;
}

// Threads do not come along into a forked process, nor do those who would unlock or wake: there the
// caller works alone, in a child's child too, and the end does not wait for the others.
TEST(ThreadPool, WorksInAForkedProcess) {
  for (int i = 0; i < 20; ++i) {
    auto pool = std::make_unique<optimized::ThreadPool>(3);
    Call before(3);
    pool->Run(Note, &before);
    // The workers look for the next call, or sleep.
    if (i % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto works = [&] {
        Call call(3);
        pool->Run(Note, &call);
        return call.of[0].load() == 1 && call.Came() == 1 && pool->workers() == 3;
      };
      if (!works()) _exit(1);
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        const bool works_there = works();
        pool.reset();
        _exit(works_there ? 0 : 1);
      }
      if (grandchild < 0 || StatusOf(grandchild) != 0) _exit(2);
      pool.reset();
      _exit(0);
    }
    EXPECT_EQ(StatusOf(child), 0);
    // The parent keeps its threads.
    Call after(3);
    after.wanted = 3;
    pool->Run(Note, &after);
    EXPECT_EQ(after.Came(), 3);
  }
}

}  // namespace
}  // namespace kvcheck
