// The time of child processes as a test says it, so that a slow machine is no silence: time stands
// still for every child but one that says that it hangs, or that time passes between its signs.
// What is said lies in memory that forked children share, or in a file that other programs map.

#ifndef TESTS_TOOLS_PROCESS_CHILD_TIME_H_
#define TESTS_TOOLS_PROCESS_CHILD_TIME_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "tools/process/attended_clock.h"

namespace kvcheck {

// Zeros that processes share: of a file, which is made where it is missing, or, where that is "",
// of this process and those that it forks. Nothing is constructed: another process may have begun.
template <typename T>
T* MapShared(const std::string& path) {
  const int file = path.empty() ? -1 : open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (!path.empty() && (file < 0 || ftruncate(file, sizeof(T)) != 0)) abort();
  void* place = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE,
                     MAP_SHARED | (path.empty() ? MAP_ANONYMOUS : 0), file, 0);
  if (place == MAP_FAILED) abort();
  if (file >= 0) close(file);
  return static_cast<T*>(place);
}

class ChildTime {
 public:
  // Names the file in the environment of other programs.
  static constexpr const char* kVariable = "KVCHECK_TEST_CHILD_TIME";

  explicit ChildTime(const std::string& path = "") : shared_(MapShared<Shared>(path)) {}
  ~ChildTime() {
    if (counts_) AttendedClock::of_child = nullptr;
    munmap(shared_, sizeof(Shared));
  }
  ChildTime(const ChildTime&) = delete;
  ChildTime& operator=(const ChildTime&) = delete;

  // What the environment names; null: nothing.
  static ChildTime* FromEnvironment() {
    static const char* const path = getenv(kVariable);
    static ChildTime* const time = path == nullptr ? nullptr : new ChildTime(path);
    return time;
  }

  // From now on this process, and those that it forks, wait for their children by this time.
  void Count() {
    counts_ = true;
    AttendedClock::of_child = [shared = shared_](int child) { return Look(shared, child); };
  }

  // Called by a child: from now on each look at it is a day later than the one before.
  void Hang() { Own()->hangs = true; }

  // Called by a child: lets so much time pass at once.
  void Skip(std::chrono::nanoseconds time) { Own()->passed += time.count(); }

  // Called by a child: the same, step by step where it is called often. Returns when its parent has
  // taken a sign of progress that came after it. `sign` gives one, or none sooner after another
  // than `between`.
  void Pass(std::chrono::nanoseconds time, const std::function<void()>& sign,
            std::chrono::milliseconds between = std::chrono::milliseconds(10)) {
    Skip(time);
    const Slot* slot = Own();
    std::this_thread::sleep_for(between + std::chrono::milliseconds(1));
    sign();
    // A parent looks at most five times before it takes what has arrived: at the renewal by a sign
    // before, when it stops to wait for several and when it begins, before and after it polls.
    for (const int64_t enough = slot->looks + 8; slot->looks < enough; sign()) usleep(1000);
  }

 private:
  // Lock-free, so that they work between processes.
  struct Slot {
    std::atomic<int> process;
    std::atomic<bool> hangs;
    std::atomic<int64_t> passed;  // nanoseconds
    std::atomic<int64_t> looks;
  };
  struct Shared {
    Slot slots[4096];  // of those that have said something
  };

  static Slot* Find(Shared* shared, int process) {
    for (Slot& slot : shared->slots) {
      const int taken = slot.process;
      if (taken == process) return &slot;
      if (taken == 0) break;
    }
    return nullptr;
  }

  Slot* Own() {
    if (Slot* slot = Find(shared_, getpid())) return slot;
    for (Slot& slot : shared_->slots) {
      int free = 0;
      if (slot.process.compare_exchange_strong(free, getpid())) return &slot;
    }
    abort();
  }

  static AttendedClock::time_point Look(Shared* shared, int child) {
    Slot* slot = Find(shared, child);
    if (slot == nullptr) return {};
    ++slot->looks;
    if (slot->hangs) slot->passed += std::chrono::nanoseconds(std::chrono::hours(24)).count();
    return AttendedClock::time_point(std::chrono::nanoseconds(slot->passed));
  }

  Shared* shared_;
  bool counts_ = false;
};

// Time that other programs say too, which this process starts while it lives.
class SharedChildTime {
 public:
  explicit SharedChildTime(const std::string& folder)
      : path_(folder + "/kvcheck_child_time_" + std::to_string(getpid())), time_(path_) {
    setenv(ChildTime::kVariable, path_.c_str(), 1);
    time_.Count();
  }
  ~SharedChildTime() {
    unsetenv(ChildTime::kVariable);
    unlink(path_.c_str());
  }

 private:
  std::string path_;
  ChildTime time_;
};

// The clock of the machine in a process that asks AttendedClock, as a test moves it on by a file:
// what a suspension is, without waiting for it.
class MachineTime {
 public:
  static constexpr const char* kVariable = "KVCHECK_TEST_MACHINE_TIME";

  explicit MachineTime(const std::string& path = "") : ahead_(MapShared<Ahead>(path)) {}

  // Of this process, and those that it forks, to their end.
  void Count() const {
    of_process = ahead_;
    AttendedClock::machine_time = [] {
      return std::chrono::steady_clock::now() + std::chrono::nanoseconds(of_process->load());
    };
  }
  void MoveOn(std::chrono::nanoseconds time) const { *ahead_ += time.count(); }

 private:
  using Ahead = std::atomic<int64_t>;
  static inline Ahead* of_process = nullptr;
  Ahead* ahead_;  // never unmapped
};

// What the environment asks for, in a program of a test.
inline void CountTimeOfEnvironment() {
  if (ChildTime* time = ChildTime::FromEnvironment()) time->Count();
  if (const char* path = getenv(MachineTime::kVariable)) MachineTime(path).Count();
}

}  // namespace kvcheck

#endif  // TESTS_TOOLS_PROCESS_CHILD_TIME_H_
