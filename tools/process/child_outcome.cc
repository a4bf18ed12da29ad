// How a child's end reads.

#include <fmt/format.h>

#include <cstring>

#include "tools/process/supervised_child.h"

namespace kvcheck {

std::string ToString(const ChildOutcome& outcome) {
  switch (outcome.end) {
    case ChildEnd::kExited:
      return fmt::format("exited with code {}", outcome.code);
    case ChildEnd::kSignalled:
      return fmt::format("crashed (signal {}, {})", outcome.code, strsignal(outcome.code));
    case ChildEnd::kTimedOut:
    case ChildEnd::kProtocolError:
      return outcome.detail;
    case ChildEnd::kStopped:
      return "was stopped";
  }
  return "unknown";
}

}  // namespace kvcheck
