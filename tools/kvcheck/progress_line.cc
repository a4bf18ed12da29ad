#include "tools/kvcheck/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace kvcheck {
namespace {

// Wide enough to overwrite an earlier line, narrow enough for every terminal.
constexpr int kColumns = 78;
constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

ProgressLine::ProgressLine(bool quiet) : shown_(isatty(STDERR_FILENO) != 0 && !quiet) {}

bool ProgressLine::IsDue() const {
  return shown_ && std::chrono::steady_clock::now() - last_ >= kInterval;
}

void ProgressLine::Show(const std::string& text) {
  if (!shown_) return;
  last_ = std::chrono::steady_clock::now();
  fmt::print(stderr, "\r{:<{}.{}}", text, kColumns, kColumns);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::Clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r{:{}}\r", "", kColumns);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace kvcheck
