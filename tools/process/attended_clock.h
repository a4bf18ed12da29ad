// The time in which this thread could have noticed something: time that passes while the process is
// suspended (SIGSTOP, job control, a debugger, a frozen container) is no silence of a child. A step
// between two looks counts as no more than kLongestStep, and whoever waits looks more often.

#ifndef TOOLS_PROCESS_ATTENDED_CLOCK_H_
#define TOOLS_PROCESS_ATTENDED_CLOCK_H_

#include <algorithm>
#include <chrono>

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
    thread_local auto looked = std::chrono::steady_clock::now();
    thread_local time_point attended{};
    const auto real = std::chrono::steady_clock::now();
    attended += std::min<duration>(real - looked, kLongestStep);
    looked = real;
    return attended;
  }
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_ATTENDED_CLOCK_H_
