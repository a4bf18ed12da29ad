#include "tools/kvcheck/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "tools/kvcheck/notice.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

// Wide enough to overwrite an earlier line, narrow enough for every terminal.
constexpr int kColumns = 78;
constexpr std::chrono::milliseconds kInterval{100};

// Where it cannot be written, nobody misses it.
void Draw(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

ProgressLine::ProgressLine(bool quiet) : shown_(isatty(STDERR_FILENO) != 0 && !quiet) {}

bool ProgressLine::IsDue() const {
  return shown_ && std::chrono::steady_clock::now() - last_ >= kInterval;
}

void ProgressLine::Show(const std::string& text) {
  if (!shown_) return;
  last_ = std::chrono::steady_clock::now();
  Draw(fmt::format("\r{:<{}.{}}", NameText(text), kColumns, kColumns));
  drawn_ = true;
}

void ProgressLine::Clear() {
  if (!drawn_) return;
  Draw(fmt::format("\r{:{}}\r", "", kColumns));
  drawn_ = false;
}

void ProgressLine::Notice(const std::string& text) { PrintNotice(text); }

}  // namespace kvcheck
