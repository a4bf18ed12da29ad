// One line on standard error that is written over and over while a command works; nothing where
// standard error is no terminal.

#ifndef TOOLS_KVCHECK_PROGRESS_LINE_H_
#define TOOLS_KVCHECK_PROGRESS_LINE_H_

#include <chrono>
#include <string>

#include "tools/corridor/progress.h"

namespace kvcheck {

class ProgressLine : public Progress {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine() override { ProgressLine::Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool shown() const { return shown_; }
  // At most ten a second.
  bool IsDue() const override;
  void Show(const std::string& text) override;
  void Clear() override;
  // Also where standard error is no terminal.
  void Notice(const std::string& text) override;

 private:
  bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_PROGRESS_LINE_H_
