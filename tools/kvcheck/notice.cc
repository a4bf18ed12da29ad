#include "tools/kvcheck/notice.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>

#include "tools/report/shown_text.h"

namespace kvcheck {

void PrintNotice(std::string_view text) {
  // Not fmt::print, which throws where it cannot write.
  std::fputs((MessageText(text) + "\n").c_str(), stderr);
  std::fflush(stderr);
}

bool ReaderHasGone() {
  // A closed descriptor is POLLNVAL.
  pollfd out{STDOUT_FILENO, 0, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

}  // namespace kvcheck
