#include "tools/kvcheck/notice.h"

#include <cstdio>

#include "tools/report/shown_text.h"

namespace kvcheck {

void PrintNotice(std::string_view text) {
  // Not fmt::print, which throws where it cannot write.
  std::fputs((MessageText(text) + "\n").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace kvcheck
