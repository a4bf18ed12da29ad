// The time in which this thread could have noticed something: time that passes while the process is
// suspended (SIGSTOP, job control, a debugger, a frozen container) is no silence of a child. A step
// between two looks counts as no more than kLongestStep, and whoever waits looks more often.

#ifndef TOOLS_PROCESS_ATTENDED_CLOCK_H_
#define TOOLS_PROCESS_ATTENDED_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <functional>

namespace kvcheck {

// Of one thread each: points of two threads cannot be compared.
class AttendedClock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<AttendedClock>;
  static constexpr bool is_steady = true;

  // Twice what a wait lasts at most, so that a loaded machine counts in full.
  static constexpr std::chrono::milliseconds kLongestStep{100};

  static time_point now() {
    thread_local auto looked = machine_time();
    thread_local time_point attended{};
    const auto real = machine_time();
    attended += std::min<duration>(real - looked, kLongestStep);
    looked = real;
    return attended;
  }
  // For limits of a child process: now(), unless a test says otherwise.
  static time_point OfChild(int process) { return of_child ? of_child(process) : now(); }

  // Set by tests only, before anything waits: what time it is, so that no test depends on the speed
  // of a machine (tests/tools/process/child_time.h).
  static inline std::function<time_point(int process)> of_child;
  static inline std::chrono::steady_clock::time_point (*machine_time)() =
      &std::chrono::steady_clock::now;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_ATTENDED_CLOCK_H_
