// Children that break the process protocol in every way known: each is met twice in one run, is the
// loss that it should be, and keeps nobody waiting; the run goes on, and no process and no
// descriptor is left.

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/tools/process/child_time.h"
#include "tools/process/remote_cache.h"
#include "tools/process/remote_process.h"

namespace kvcheck {
namespace {

using std::chrono::milliseconds;

// By the time that the children say: it stands still for what does not hang.
constexpr milliseconds kHour = std::chrono::hours(1);

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return SIZE_MAX;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

bool HasChildren() { return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

CacheSetup SmallSetup() {
  CacheSetup setup;
  setup.k_dim = setup.v_dim = 8;
  return setup;
}

class HostileChild : public testing::Test {
 protected:
  void SetUp() override { descriptors_ = OpenDescriptors(); }
  void TearDown() override {
    EXPECT_EQ(OpenDescriptors(), descriptors_) << "a descriptor was left open";
    EXPECT_FALSE(HasChildren()) << "a process was left behind";
  }

  static std::shared_ptr<RemoteProcess> Process(const std::string& kind,
                                                const std::string& file = "") {
    std::vector<std::string> command = {KVCHECK_HOSTILE_CHILD, kind};
    if (!file.empty()) command.push_back(file);
    return std::make_shared<RemoteProcess>(command, RemoteLimits{kHour, kHour});
  }

  // Start, a cache of one row, two columns appended, a look at the state.
  static void RunCase(RemoteCacheFactory& factory) {
    ASSERT_TRUE(factory.Start(SmallSetup()).ok());
    factory.ObserveAfter(ObserveHint::kTouched);
    std::unique_ptr<Cache> cache;
    const KvFormat plain = PlainFormat{};
    ASSERT_TRUE(factory.New({}, plain, plain, 1, {}, &cache).ok());
    std::vector<float> vectors(16, 1.0f);
    TokenColumns columns;
    columns.rows = columns.kv_heads = 1;
    columns.columns = 2;
    columns.k_dim = columns.v_dim = 8;
    columns.k = columns.v = reinterpret_cast<const std::byte*>(vectors.data());
    columns.k_strides = columns.v_strides = {64, 64, 32};
    ASSERT_TRUE(cache->Append(columns).ok());
    StepView view;
    cache->Observe(&view);
    EXPECT_EQ(view.rows, 1);
  }

  // Two cases are lost in this way, each with a process of its own. Gives the last reason.
  static std::string ExpectLosses(const std::string& kind, const std::string& signature) {
    RemoteCacheFactory factory(Process(kind));
    std::string reason;
    for (int i = 1; i <= 2; ++i) {
      try {
        RunCase(factory);
        ADD_FAILURE() << kind << ": nothing was lost";
      } catch (const RemoteLoss& loss) {
        EXPECT_EQ(loss.Signature(), signature) << kind << ": " << loss.reason();
        reason = loss.reason();
      }
      EXPECT_EQ(factory.process().epoch(), i) << kind;
      EXPECT_FALSE(factory.process().running()) << kind;
      EXPECT_FALSE(HasChildren()) << kind;
    }
    return reason;
  }

 private:
  SharedChildTime time_{testing::TempDir()};
  size_t descriptors_ = 0;
};

TEST_F(HostileChild, IsLostWhereItEndsWithinARequest) {
  EXPECT_NE(ExpectLosses("exit_0", "append CRASHED").find("exited with code 0 in 'append'"),
            std::string::npos);
  const std::string reason = ExpectLosses("exit_3", "append CRASHED");
  EXPECT_NE(reason.find("exited with code 3 in 'append'; it printed: a line | no such device ??"),
            std::string::npos)
      << reason;
  EXPECT_NE(ExpectLosses("signal", "append CRASHED").find("signal 9"), std::string::npos);
  ExpectLosses("exit_3_within_frame", "append CRASHED");
  ExpectLosses("grandchild_keeps_pipes", "append CRASHED");
  EXPECT_NE(ExpectLosses("flood_and_exit", "append CRASHED").find("line 19999 of a flood"),
            std::string::npos);
  EXPECT_NE(ExpectLosses("failed", "append CRASHED").find("KeyError: 'B1'"), std::string::npos);
}

TEST_F(HostileChild, IsLostWhereItHangs) {
  for (const char* kind : {"hang", "half_header", "half_frame"}) {
    const std::string reason = ExpectLosses(std::string("in_start:") + kind, "start TIMED_OUT");
    EXPECT_NE(reason.find("made no progress for 3600.0 s"), std::string::npos) << reason;
  }
}

TEST_F(HostileChild, IsLostWhereSignsOfProgressDoNotEnd) {
  for (const char* kind : {"endless_progress", "flood_of_progress"}) {
    const std::string reason = ExpectLosses(std::string("in_start:") + kind, "start TIMED_OUT");
    // Twenty limits.
    EXPECT_NE(reason.find("signs of progress and no answer for 72000.0 s"), std::string::npos)
        << reason;
  }
}

// Loading a model may take long, but not for ever.
TEST_F(HostileChild, IsLostWhereItsGreetingOnlyGivesSignsOfProgress) {
  RemoteProcess process({KVCHECK_HOSTILE_CHILD, "in_hello:endless_progress"}, {kHour, kHour});
  try {
    process.Start();
    FAIL() << "greeted";
  } catch (const RemoteLoss& loss) {
    EXPECT_EQ(loss.Signature(), "hello TIMED_OUT") << loss.reason();
    EXPECT_NE(loss.reason().find("signs of progress and no answer for 36000.0 s"),
              std::string::npos)
        << loss.reason();
  }
}

// An import of several limits, as SGLang's on a busy machine.
TEST_F(HostileChild, GreetsAfterALongImportWithSignsOfProgress) {
  RemoteProcess process({KVCHECK_HOSTILE_CHILD, "greets_late"}, {kHour, kHour});
  EXPECT_EQ(process.greeting().name, "hostile");
}

TEST_F(HostileChild, IsLostWhereItDoesNotListen) {
  const std::string reason = ExpectLosses("closes_input", "start PROTOCOL");
  EXPECT_NE(reason.find("closed its standard input"), std::string::npos) << reason;
}

// Its signs of progress go on while a request waits that no pipe holds.
TEST_F(HostileChild, IsLostWhereItNeverReads) {
  const auto process = Process("never_reads");
  try {
    WireWriter& writer = process->Begin("start");
    writer.Key("bytes");
    writer.Bytes(std::vector<std::byte>(size_t{16} << 20));
    process->Call();
    FAIL() << "answered";
  } catch (const RemoteLoss& loss) {
    EXPECT_EQ(loss.Signature(), "start TIMED_OUT") << loss.reason();
  }
}

// A second answer that comes when the first one has long been taken.
TEST_F(HostileChild, IsLostWhereItAnswersTwiceWithADelay) {
  const std::string file = testing::TempDir() + "/kvcheck_answered_" + std::to_string(getpid());
  const auto process = Process("answers_again", file);
  process->Begin("start");
  process->Call();
  // The child says when the second one is in the pipe.
  while (access(file.c_str(), F_OK) != 0) usleep(1000);
  ASSERT_EQ(unlink(file.c_str()), 0);
  try {
    process->Begin("append");
    process->Call();
    FAIL() << "the late answer was taken for the next one's";
  } catch (const RemoteLoss& loss) {
    EXPECT_EQ(loss.Signature(), "append PROTOCOL");
    EXPECT_NE(loss.reason().find("more than one answer"), std::string::npos) << loss.reason();
  }
}

TEST_F(HostileChild, IsLostWhereItsAnswerIsNone) {
  for (const char* kind :
       {"exit_within_frame",   "exit_within_header", "garbage_length", "length_2_to_63",
        "length_beyond_limit", "no_messagepack",     "no_map",         "ends_early",
        "bytes_behind",        "key_no_text",        "deep",           "many_values",
        "announces_4_billion", "text_of_4_billion",  "two_answers",    "no_states",
        "states_no_array",     "states_of_nobody",   "state_nil",      "state_no_map",
        "refused_no_text"}) {
    ExpectLosses(kind, "append PROTOCOL");
  }
  const std::string reason = ExpectLosses("prints_text", "append PROTOCOL");
  EXPECT_NE(reason.find("the text 'Fetching'"), std::string::npos) << reason;
}

TEST_F(HostileChild, IsLostWhereAStateDoesNotFit) {
  for (const char* kind : {"negative_rows",
                           "text_for_rows",
                           "other_rows",
                           "negative_extent",
                           "extents_overflow",
                           "extents_wrap_to_bytes",
                           "empty_and_endless",
                           "bytes_do_not_fit",
                           "unknown_type",
                           "other_type",
                           "other_columns",
                           "too_many_axes",
                           "no_axes",
                           "mask_value",
                           "mask_shape",
                           "mask_queries",
                           "size_not_a_number",
                           "negative_size",
                           "size_beyond_integers",
                           "offsets_of_two",
                           "offset_below_0",
                           "empty_is_1",
                           "unknown_layout",
                           "unknown_format",
                           "affine_without_scales",
                           "no_array"}) {
    ExpectLosses(kind, "append PROTOCOL");
  }
}

// What the kinds above are compared with: nothing of this is a loss.
TEST_F(HostileChild, IsNoneWhereItIsOnlyOdd) {
  for (const char* kind :
       {"honest", "honest_state", "flood_of_lines", "in_pieces", "long_answer"}) {
    RemoteCacheFactory factory(Process(kind));
    for (int i = 0; i < 2; ++i) {
      try {
        RunCase(factory);
      } catch (const RemoteLoss& loss) {
        ADD_FAILURE() << kind << ": " << loss.reason();
      }
    }
    EXPECT_EQ(factory.process().epoch(), 1) << kind;
  }
}

TEST_F(HostileChild, IsNotBelievedWhereItGreetsWrongly) {
  for (const char* kind : {"hello_version", "hello_without_name", "hello_kinds",
                           "hello_unknown_kind", "hello_plan", "hello_profile", "hello_space"}) {
    ExpectLosses(kind, "hello PROTOCOL");
  }
  ExpectLosses("in_hello:exit_3", "hello CRASHED");
  ExpectLosses("in_hello:prints_text", "hello PROTOCOL");
}

TEST_F(HostileChild, IsLostWhereItHangsInsteadOfGreeting) {
  RemoteProcess process({KVCHECK_HOSTILE_CHILD, "in_hello:hang"}, {kHour, kHour});
  for (int i = 1; i <= 2; ++i) {
    try {
      process.Start();
      ADD_FAILURE() << "nothing was lost";
    } catch (const RemoteLoss& loss) {
      EXPECT_EQ(loss.Signature(), "hello TIMED_OUT");
    }
    EXPECT_EQ(process.epoch(), i);
  }
}

TEST_F(HostileChild, IsNotStartedForEver) {
  const auto process = Process("in_hello:exit_3");
  for (int i = 1; i <= 10; ++i) {
    EXPECT_THROW(process->Start(), RemoteLoss);
    EXPECT_EQ(process->epoch(), std::min(i, kMostFailedStarts));
  }
  RemoteProcess nothing({"/no/such/program"}, {});
  EXPECT_THROW(nothing.Start(), RemoteLoss);
}

TEST_F(HostileChild, MustGreetAsBefore) {
  const std::string file = testing::TempDir() + "/kvcheck_hello_" + std::to_string(getpid());
  std::filesystem::remove(file);
  const auto process = Process("hello_changes", file);
  process->Start();
  EXPECT_EQ(process->greeting().name, "hostile");
  const auto again = std::make_shared<RemoteProcess>(
      std::vector<std::string>{KVCHECK_HOSTILE_CHILD, "hello_changes", file},
      RemoteLimits{kHour, kHour}, process->greeting());
  try {
    again->Start();
    ADD_FAILURE() << "another name was believed";
  } catch (const RemoteLoss& loss) {
    EXPECT_EQ(loss.Signature(), "hello PROTOCOL");
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace kvcheck
