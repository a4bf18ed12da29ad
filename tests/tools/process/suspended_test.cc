// Time in which the whole tree of processes is suspended is no silence of a child. The tree is
// stopped from the top, so that nothing is counted while the test looks for signs.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <thread>

#include "tests/tools/process/child_time.h"
#include "tools/process/attended_clock.h"
#include "tools/process/supervised_child.h"

namespace kvcheck {
namespace {

constexpr std::chrono::milliseconds kSuspendedLimit = std::chrono::hours(1);

// What the processes tell each other; lock-free, so that it works between them.
struct SuspendedSigns {
  std::atomic<pid_t> worker = 0;
  std::atomic<bool> be_silent = false;
  std::atomic<bool> is_silent = false;
  std::atomic<bool> answer = false;
  std::atomic<int64_t> looks = 0;  // of whoever waits for the worker
  std::atomic<int64_t> looks_when_continued = 0;
};

// ctest ends what waits for ever.
void Await(const std::function<bool()>& sign) {
  while (!sign()) usleep(1000);
}

// Gives signs of progress until it is told not to, and answers when it is allowed to and the parent
// has looked again: a parent that counts the suspension has given up by then.
int SilentWorker(SuspendedSigns* signs, ChildChannel& channel) {
  signs->worker = getpid();
  while (!signs->be_silent) {
    channel.Progress();
    usleep(1000);
  }
  signs->is_silent = true;
  while (!signs->answer || signs->looks < signs->looks_when_continued + 2) usleep(1000);
  const std::byte message[] = {std::byte{7}};
  channel.Send(message);
  return 0;
}

// The parent of the worker: 0 where the answer came.
int WaitForWorker(SuspendedSigns* signs, const MachineTime& time, bool with_others) {
  time.Count();
  ChildLimits limits;
  limits.since_progress = kSuspendedLimit;
  limits.on_wait = [signs] { ++signs->looks; };
  SupervisedChild child([signs](ChildChannel& c) { return SilentWorker(signs, c); }, limits);
  if (!with_others) return child.Receive() ? 0 : 1;
  SupervisedChild* const children[] = {&child};
  while (!SupervisedChild::WaitAny(children, std::chrono::milliseconds(50))) {
  }
  return child.TakeArrived() ? 0 : 1;
}

void ExpectAnswerPastSuspension(bool with_others) {
  void* memory = mmap(nullptr, sizeof(SuspendedSigns), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* signs = new (memory) SuspendedSigns();
  const MachineTime time;
  const pid_t parent = fork();
  if (parent == 0) _exit(WaitForWorker(signs, time, with_others));
  Await([&] { return signs->worker != 0 && signs->looks > 0; });
  kill(parent, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, WUNTRACED), parent);
  ASSERT_TRUE(WIFSTOPPED(status));
  signs->be_silent = true;
  Await([&] { return signs->is_silent.load(); });
  const pid_t worker = signs->worker;
  kill(worker, SIGSTOP);
  // Longer than the limit: this is the suspension itself.
  time.MoveOn(kSuspendedLimit * 10);
  signs->looks_when_continued = signs->looks.load();
  signs->answer = true;
  kill(worker, SIGCONT);
  kill(parent, SIGCONT);
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the suspension was taken for silence";
  munmap(memory, sizeof(SuspendedSigns));
}

TEST(SuspendedTree, IsNotTakenForSilenceOfAChild) { ExpectAnswerPastSuspension(false); }

TEST(SuspendedTree, IsNotTakenForSilenceOfOneOfSeveral) { ExpectAnswerPastSuspension(true); }

// As if each look of the parent came long after the one before: a step of each counts.
TEST(SuspendedTree, EachLookAtASilentChildCountsAStep) {
  const MachineTime time;
  const pid_t parent = fork();
  if (parent == 0) {
    time.Count();
    constexpr int kSteps = 10;
    ChildLimits limits;
    limits.since_progress = kSteps * AttendedClock::kLongestStep;
    int looks = 0;
    limits.on_wait = [&] {
      ++looks;
      time.MoveOn(kSuspendedLimit);
    };
    SupervisedChild child([](ChildChannel& c) { return c.Receive() ? 1 : 0; }, limits);
    const bool answered = child.Receive().has_value();
    const bool silent = !answered && child.Finish().end == ChildEnd::kTimedOut;
    _exit(silent && looks == kSteps ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(AttendedClock, CountsNoMoreThanOneStepBetweenTwoLooks) {
  const auto before = AttendedClock::now();
  std::this_thread::sleep_for(3 * AttendedClock::kLongestStep);
  const auto after = AttendedClock::now();
  EXPECT_GT(after - before, AttendedClock::duration::zero());
  EXPECT_LE(after - before, AttendedClock::kLongestStep);
}

}  // namespace
}  // namespace kvcheck
