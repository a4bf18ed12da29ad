// Children that misbehave in every way known end as values, leave no process and no descriptor
// behind, and do not keep the parent waiting.

#include "tools/process/supervised_child.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "reference/spec/error.h"
#include "tests/tools/process/child_time.h"
#include "tools/campaign/shared_memory.h"
#include "tools/process/message_frame.h"

namespace kvcheck {
namespace {

using std::chrono::milliseconds;

constexpr int kMessageDescriptor = 3;  // of a forked child

Message Bytes(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Message(data, data + text.size());
}

std::string Text(const Message& message) {
  return std::string(reinterpret_cast<const char*>(message.data()), message.size());
}

ChildLimits Within(milliseconds since_progress) {
  ChildLimits limits;
  limits.since_progress = since_progress;
  return limits;
}

constexpr milliseconds kForEver = std::chrono::hours(1000);

// No limit: ctest ends what hangs.
ChildLimits Patient() { return Within(kForEver); }

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return SIZE_MAX;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

bool HasChildren() { return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

class SupervisedChildTest : public testing::Test {
 protected:
  void SetUp() override { descriptors_ = OpenDescriptors(); }
  void TearDown() override {
    EXPECT_EQ(OpenDescriptors(), descriptors_) << "a descriptor was left open";
    EXPECT_FALSE(HasChildren()) << "a process was left behind";
  }

 private:
  size_t descriptors_ = 0;
};

void WriteRaw(const void* data, size_t size) {
  if (write(kMessageDescriptor, data, size) != static_cast<ssize_t>(size)) _exit(99);
}

[[noreturn]] void Loop() {
  volatile unsigned turns = 0;
  while (true) turns = turns + 1;
}

TEST_F(SupervisedChildTest, GivesMessagesInOrderAndTheExitCode) {
  std::vector<std::string> got;
  const ChildOutcome outcome = RunSupervised(
      [](ChildChannel& channel) {
        for (const char* text : {"one", "two", "three"}) channel.Send(Bytes(text));
        return 0;
      },
      Patient(), [&](const Message& message) { got.push_back(Text(message)); });
  EXPECT_TRUE(outcome.Succeeded()) << ToString(outcome);
  EXPECT_EQ(got, (std::vector<std::string>{"one", "two", "three"}));
}

TEST_F(SupervisedChildTest, GivesLongMessagesWhole) {
  for (size_t size : {size_t{1}, size_t{65535}, size_t{65536}, size_t{65537}, size_t{5'000'001}}) {
    Message sent(size);
    for (size_t i = 0; i < size; ++i) sent[i] = static_cast<std::byte>(i * 31 >> 3);
    SupervisedChild child(
        [](ChildChannel& channel) {
          while (const auto message = channel.Receive()) channel.Send(*message);
          return 7;
        },
        Patient());
    ASSERT_TRUE(child.Send(sent));
    EXPECT_TRUE(child.Receive() == sent) << size;
    EXPECT_EQ(child.Finish().code, 7);
  }
}

TEST_F(SupervisedChildTest, TwoLongMessagesDoNotWaitForEachOther) {
  const Message large(5'000'000, std::byte{1});
  SupervisedChild child(
      [&](ChildChannel& channel) {
        channel.Send(large);
        return channel.Receive() == large ? 0 : 1;
      },
      Patient());
  EXPECT_TRUE(child.Send(large));
  EXPECT_TRUE(child.Receive() == large);
  EXPECT_TRUE(child.Finish().Succeeded());
}

TEST_F(SupervisedChildTest, NamesTheExitCodeAndTheLastLinesPrinted) {
  const ChildOutcome outcome = RunSupervised(
      [](ChildChannel&) {
        std::printf("to stdout\n");
        std::fprintf(stderr, "to stderr\n");
        return 3;
      },
      Patient());
  EXPECT_EQ(ToString(outcome), "exited with code 3");
  EXPECT_NE(outcome.stderr_tail.find("to stderr\n"), std::string::npos);
  EXPECT_NE(outcome.stderr_tail.find("to stdout\n"), std::string::npos);
}

TEST_F(SupervisedChildTest, KeepsOnlyTheTailOfMuchPrinting) {
  const ChildOutcome outcome = RunSupervised(
      [](ChildChannel&) {
        for (int i = 0; i < 100'000; ++i) std::fprintf(stderr, "line %d\n", i);
        return 0;
      },
      Patient());
  EXPECT_TRUE(outcome.Succeeded());
  EXPECT_LE(outcome.stderr_tail.size(), size_t{4096});
  EXPECT_NE(outcome.stderr_tail.find("line 99999\n"), std::string::npos);
}

TEST_F(SupervisedChildTest, AnUncaughtExceptionIsAnExitCodeWithItsText) {
  const ChildOutcome outcome = RunSupervised(
      [](ChildChannel&) -> int { throw std::runtime_error("no such luck"); }, Patient());
  EXPECT_EQ(outcome.end, ChildEnd::kExited);
  EXPECT_EQ(outcome.code, kChildThrewExitCode);
  EXPECT_NE(outcome.stderr_tail.find("no such luck"), std::string::npos);
}

TEST_F(SupervisedChildTest, ACrashIsASignal) {
  for (int number : {SIGKILL, SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) {
    const ChildOutcome outcome = RunSupervised(
        [number](ChildChannel&) {
          signal(number, SIG_DFL);  // sanitizers handle some
          raise(number);
          return 0;
        },
        Patient());
    EXPECT_EQ(outcome.end, ChildEnd::kSignalled);
    EXPECT_EQ(outcome.code, number);
  }
}

TEST_F(SupervisedChildTest, MessagesBeforeACrashArrive) {
  int messages = 0;
  const ChildOutcome outcome = RunSupervised(
      [](ChildChannel& channel) {
        channel.Send(Bytes("last words"));
        raise(SIGKILL);
        return 0;
      },
      Patient(), [&](const Message&) { ++messages; });
  EXPECT_EQ(messages, 1);
  EXPECT_EQ(outcome.end, ChildEnd::kSignalled);
}

TEST_F(SupervisedChildTest, AHangEndsAtTheLimitWhetherItSleepsLoopsOrClosesThePipe) {
  const std::vector<std::function<int(ChildChannel&)>> hangs = {
      [](ChildChannel&) { return static_cast<int>(sleep(1000)); },
      [](ChildChannel&) -> int { Loop(); },
      [](ChildChannel&) -> int {
        close(kMessageDescriptor);
        Loop();
      },
      [](ChildChannel&) -> int {
        for (int number = 1; number < 32; ++number) signal(number, SIG_IGN);
        Loop();
      },
      [](ChildChannel&) -> int {
        while (true) {
          std::fprintf(stderr, "printing is no progress\n");
          std::fflush(stderr);
        }
      },
      [](ChildChannel&) -> int {
        WriteRaw("\x05\0\0\0\0\0\0\0ab", 10);  // a message that never ends
        Loop();
      }};
  for (size_t i = 0; i < hangs.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    const ChildOutcome outcome = RunSupervised(hangs[i], Within(milliseconds(200)));
    EXPECT_EQ(outcome.end, ChildEnd::kTimedOut) << i;
    EXPECT_EQ(ToString(outcome), "made no progress for 0.2 s");
    EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(200));
  }
}

TEST_F(SupervisedChildTest, ProgressKeepsALongJobAlive) {
  ChildTime time;
  time.Count();
  const ChildLimits limits = Within(std::chrono::hours(1));
  const auto job = [&time](int minutes) {
    return [&time, minutes](ChildChannel& channel) {
      for (int step = 0; step < 3; ++step) {
        time.Pass(std::chrono::minutes(minutes), [&] { channel.Progress(); });
      }
      return 0;
    };
  };
  const ChildOutcome outcome = RunSupervised(job(40), limits);
  EXPECT_TRUE(outcome.Succeeded()) << ToString(outcome);
  // A step that is longer than the limit, before its sign.
  const ChildOutcome silent = RunSupervised(
      [&time](ChildChannel&) -> int {
        time.Pass(std::chrono::minutes(60), [] {});
        Loop();
      },
      limits);
  EXPECT_EQ(ToString(silent), "made no progress for 3600.0 s");
}

TEST_F(SupervisedChildTest, SignsOfProgressWithoutAnAnswerEndAtTheLimitOfTheWholeWait) {
  ChildTime time;
  time.Count();
  ChildLimits limits = Within(std::chrono::hours(1));
  limits.whole_wait = std::chrono::hours(2);
  int steps = 3;
  const auto job = [&](ChildChannel& channel) {
    for (int step = 0; step < steps; ++step) {
      time.Pass(std::chrono::minutes(39), [&] { channel.Progress(); });
    }
    return 0;
  };
  EXPECT_TRUE(RunSupervised(job, limits).Succeeded());
  steps = 1000;
  EXPECT_EQ(ToString(RunSupervised(job, limits)),
            "gave signs of progress and no answer for 7200.0 s");
}

// The sign came before the parent looked: it is the parent that was slow.
TEST_F(SupervisedChildTest, ASignThatHasArrivedCountsHoweverLateTheParentLooks) {
  SharedValue<std::atomic<bool>> wanted;
  SharedValue<std::atomic<bool>> sent;
  int looks = 0;
  AttendedClock::duration time{0};
  // The first look of the wait: the sign arrives, and the parent is suspended for two hours.
  AttendedClock::of_child = [&](int) {
    if (++looks == 3) {
      *wanted.get() = true;
      while (!*sent.get()) usleep(1000);
      time = std::chrono::hours(2);
    }
    return AttendedClock::time_point(time);
  };
  SupervisedChild child(
      [&](ChildChannel& channel) {
        while (!*wanted.get()) usleep(1000);
        channel.Progress();
        *sent.get() = true;
        channel.Send(Bytes("an answer"));
        return 0;
      },
      Within(std::chrono::hours(1)));
  const std::optional<Message> answer = child.Receive();
  AttendedClock::of_child = nullptr;
  EXPECT_GE(looks, 3);
  EXPECT_TRUE(answer.has_value()) << ToString(child.Finish());
}

TEST_F(SupervisedChildTest, NonsenseIsAProtocolError) {
  const ChildOutcome huge = RunSupervised(
      [](ChildChannel&) {
        const FrameHeader header = EncodeFrameHeader(uint64_t{1} << 60);
        WriteRaw(header.data(), header.size());
        return static_cast<int>(sleep(1000));
      },
      Patient());
  EXPECT_EQ(huge.end, ChildEnd::kProtocolError);
  EXPECT_EQ(ToString(huge),
            "announced a message of 1152921504606846976 bytes, at most 67108864 are allowed");

  const ChildOutcome text = RunSupervised(
      [](ChildChannel&) {
        WriteRaw("Hello, this is a line of text.\n", 31);
        return 0;
      },
      Patient());
  EXPECT_EQ(text.end, ChildEnd::kProtocolError);

  for (size_t size : {1u, 7u, 8u, 9u}) {
    int messages = 0;
    const ChildOutcome half = RunSupervised(
        [size](ChildChannel&) {
          WriteRaw("\x05\0\0\0\0\0\0\0ab", size);
          return 0;
        },
        Patient(), [&](const Message&) { ++messages; });
    EXPECT_EQ(half.end, ChildEnd::kProtocolError) << size;
    EXPECT_EQ(ToString(half), "ended within a message");
    EXPECT_EQ(messages, 0);
  }
}

TEST_F(SupervisedChildTest, AChildThatSendsWithoutReadingIsBounded) {
  ChildLimits limits = Patient();
  limits.max_message_bytes = 1 << 20;
  SupervisedChild child(
      [](ChildChannel& channel) -> int {
        const Message message(1 << 19, std::byte{1});
        while (true) channel.Send(message);
      },
      limits);
  EXPECT_FALSE(child.Send(Message(8 << 20, std::byte{1})));
  EXPECT_EQ(child.Finish().end, ChildEnd::kProtocolError);
}

TEST_F(SupervisedChildTest, SendingToAChildThatEndedIsAValue) {
  SupervisedChild child([](ChildChannel&) { return 5; }, Patient());
  while (child.Receive()) {
  }
  EXPECT_FALSE(child.Send(Bytes("too late")));
  EXPECT_EQ(child.Finish().code, 5);

  SupervisedChild deaf([](ChildChannel&) { return 6; }, Patient());
  std::this_thread::sleep_for(milliseconds(20));
  const Message large(5'000'000, std::byte{1});
  EXPECT_FALSE(deaf.Send(large));
  EXPECT_EQ(deaf.Finish().code, 6);
}

TEST_F(SupervisedChildTest, TheDestructorKills) {
  SupervisedChild child([](ChildChannel&) -> int { Loop(); }, Patient());
}

TEST_F(SupervisedChildTest, AnExceptionOfTheParentKillsAndPassesThrough) {
  const auto run = [] {
    RunSupervised(
        [](ChildChannel& channel) -> int {
          channel.Send(Bytes("x"));
          Loop();
        },
        Patient(), [](const Message&) { throw std::runtime_error("enough"); });
  };
  EXPECT_THROW(run(), std::runtime_error);
}

TEST_F(SupervisedChildTest, AGrandchildThatHoldsThePipeDoesNotHoldTheParent) {
  const ChildOutcome outcome = RunSupervised(
      [](ChildChannel&) {
        if (fork() == 0) {
          sleep(1000);
          _exit(0);
        }
        return 4;
      },
      Patient());
  EXPECT_EQ(ToString(outcome), "exited with code 4");
}

TEST_F(SupervisedChildTest, AForkedChildHasNoOpenFilesOfTheParent) {
  const int file = fcntl(0, F_DUPFD, 50);
  ASSERT_GE(file, 50);
  SupervisedChild sibling([](ChildChannel& c) { return c.Receive() ? 1 : 0; }, Patient());
  const ChildOutcome outcome = RunSupervised(
      [](ChildChannel&) {
        int open_count = 0;
        for (int d = kMessageDescriptor + 1; d < 256; ++d) {
          open_count += fcntl(d, F_GETFD) != -1 ? 1 : 0;
        }
        return open_count;
      },
      Patient());
  close(file);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(sibling.Finish().Succeeded());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(SupervisedChildTest, MemoryBeyondTheLimitIsRefusedToTheChild) {
  ChildLimits limits = Patient();
  limits.address_space_bytes = int64_t{512} << 20;
  const ChildOutcome outcome = RunSupervised(
      [](ChildChannel&) {
        // volatile: a compiler may leave out an allocation that is not used, and call it a success.
        void* volatile block = std::malloc(size_t{1} << 30);
        const bool refused = block == nullptr;
        std::free(block);
        return refused ? 0 : 1;
      },
      limits);
  EXPECT_TRUE(outcome.Succeeded()) << ToString(outcome);
}
#endif

TEST_F(SupervisedChildTest, ProcessorTimeBeyondTheLimitIsASignal) {
  ChildLimits limits = Patient();
  limits.cpu_seconds = 1;
  const ChildOutcome outcome = RunSupervised([](ChildChannel&) -> int { Loop(); }, limits);
  EXPECT_EQ(outcome.end, ChildEnd::kSignalled) << ToString(outcome);
}

TEST_F(SupervisedChildTest, RunsAnExecutableThatSpeaksTheProtocol) {
  SupervisedChild child(
      {"sh", "-c",
       "head -c 13 > /dev/null; echo noise;"
       "printf '\\005\\000\\000\\000\\000\\000\\000\\000reply' >&$KVCHECK_MESSAGE_FD;"
       "exit 9"},
      Patient());
  EXPECT_TRUE(child.Send(Bytes("hello")));
  const std::optional<Message> reply = child.Receive();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(Text(*reply), "reply");
  EXPECT_EQ(child.Finish().code, 9);
  EXPECT_EQ(child.Finish().stderr_tail, "noise\n");
}

// Says its number after some time.
std::unique_ptr<SupervisedChild> Late(int number, int milliseconds, const ChildLimits& limits) {
  return std::make_unique<SupervisedChild>(
      [=](ChildChannel& channel) {
        usleep(static_cast<useconds_t>(milliseconds) * 1000);
        channel.Send(Bytes(std::to_string(number)));
        channel.Receive();
        return 0;
      },
      limits);
}

TEST_F(SupervisedChildTest, WaitAnyGivesWhoeverIsFirst) {
  const auto slow = Late(1, 1'000'000, Patient());
  const auto quick = Late(2, 20, Patient());
  SupervisedChild* const children[] = {slow.get(), quick.get()};
  EXPECT_EQ(SupervisedChild::WaitAny(children, kForEver), 1u);
  EXPECT_EQ(Text(*quick->TakeArrived()), "2");
  EXPECT_FALSE(quick->TakeArrived());
  EXPECT_EQ(SupervisedChild::WaitAny(children, milliseconds(20)), std::nullopt);
}

TEST_F(SupervisedChildTest, WaitAnyEndsTheOneThatHangsAndKeepsTheOther) {
  ChildTime time;
  time.Count();
  const ChildLimits limits = Within(std::chrono::hours(1));
  const auto hangs = std::make_unique<SupervisedChild>(
      [&time](ChildChannel&) -> int {
        time.Hang();
        Loop();
      },
      limits);
  // Works until the other's end has been seen.
  SharedValue<std::atomic<bool>> seen;
  const auto works = std::make_unique<SupervisedChild>(
      [&seen](ChildChannel& channel) {
        while (!*seen.get()) {
          usleep(5'000);
          channel.Progress();
        }
        channel.Send(Bytes("done"));
        return 0;
      },
      limits);
  SupervisedChild* const children[] = {hangs.get(), works.get()};
  ASSERT_EQ(SupervisedChild::WaitAny(children, kForEver), 0u);
  EXPECT_FALSE(hangs->TakeArrived());
  EXPECT_EQ(hangs->Finish().end, ChildEnd::kTimedOut);
  *seen.get() = true;
  ASSERT_EQ(SupervisedChild::WaitAny(std::span(children).subspan(1), kForEver), 0u);
  EXPECT_EQ(Text(*works->TakeArrived()), "done");
}

TEST_F(SupervisedChildTest, WaitAnyDoesNotCountWhatTheParentDidElsewhere) {
  ChildTime time;
  time.Count();
  SharedValue<std::atomic<bool>> passes;
  SharedValue<std::atomic<bool>> answers;
  SupervisedChild child(
      [&](ChildChannel& channel) {
        while (!*passes.get()) usleep(1000);
        time.Skip(std::chrono::minutes(90));
        *passes.get() = false;
        while (!*answers.get()) usleep(1000);
        channel.Send(Bytes("1"));
        channel.Receive();
        return 0;
      },
      Within(std::chrono::hours(1)));
  SupervisedChild* const children[] = {&child};
  EXPECT_EQ(SupervisedChild::WaitAny(children, milliseconds(10)), std::nullopt);
  // More than the limit, while the parent is elsewhere.
  *passes.get() = true;
  while (*passes.get()) usleep(1000);
  EXPECT_EQ(SupervisedChild::WaitAny(children, milliseconds(10)), std::nullopt);
  EXPECT_FALSE(child.HasEnded());
  *answers.get() = true;
  EXPECT_EQ(SupervisedChild::WaitAny(children, kForEver), 0u);
  EXPECT_TRUE(child.TakeArrived());
}

TEST_F(SupervisedChildTest, WaitAnySeesACrash) {
  const auto child = std::make_unique<SupervisedChild>(
      [](ChildChannel&) {
        abort();
        return 0;
      },
      Patient());
  SupervisedChild* const children[] = {child.get()};
  EXPECT_EQ(SupervisedChild::WaitAny(children, kForEver), 0u);
  EXPECT_EQ(child->Finish().end, ChildEnd::kSignalled);
}

// An adapter that is killed cannot remove what it keeps; folders of others stay.
TEST_F(SupervisedChildTest, WhatAnAdapterKeepsGoesWithTheProcessThatIsKilled) {
  namespace fs = std::filesystem;
  const fs::path place = fs::temp_directory_path();
  const std::string ours = fmt::format("-x{}", getpid());
  const auto count = [&] {
    return std::count_if(fs::directory_iterator(place), fs::directory_iterator(),
                         [&](const fs::directory_entry& entry) {
                           return entry.path().filename().string().ends_with(ours);
                         });
  };
  const fs::path other = place / ("kvcheck-adapter-0-" + ours);
  fs::create_directory(other);
  SupervisedChild child(
      {"sh", "-c", "mkdir -p \"$0/kvcheck-adapter-$$-$1/s0\"; sleep 1000", place.string(), ours},
      Patient());
  while (count() == 1) std::this_thread::yield();
  EXPECT_EQ(count(), 2);
  child.Stop();
  EXPECT_EQ(count(), 1);
  fs::remove(other);
}

TEST_F(SupervisedChildTest, AProgramThatCannotBeExecutedIsAnError) {
  for (const char* name : {"/nonexistent/program", "/dev/null", "/"}) {
    try {
      SupervisedChild child({name}, Patient());
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    }
  }
}

}  // namespace
}  // namespace kvcheck
