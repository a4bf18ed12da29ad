// The report of a command that measures in this process, written once: at the end of the work, or,
// within a second of an interrupt, of what was measured until then.

#ifndef TOOLS_KVCHECK_REPORT_ONCE_H_
#define TOOLS_KVCHECK_REPORT_ONCE_H_

#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <mutex>
#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/temporary_paths.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/notice.h"
#include "tools/report/summary.h"

namespace kvcheck {

template <typename Report>
class ReportOnce {
 public:
  // so_far: what is written of an interrupt before anything is measured.
  // write: called once, by one thread or another. What it looks at beside the report stays as it is
  // while this lives.
  ReportOnce(Report so_far, std::function<void(const Report&)> write)
      : so_far_(std::move(so_far)), write_(std::move(write)), watch_([this] { GiveUp(); }) {}
  ReportOnce(const ReportOnce&) = delete;
  ReportOnce& operator=(const ReportOnce&) = delete;

  // What has been measured until now.
  void Set(Report so_far) {
    const std::lock_guard lock(mutex_);
    so_far_ = std::move(so_far);
  }
  Report SoFar() {
    const std::lock_guard lock(mutex_);
    return so_far_;
  }
  // From now on `write` writes what is measured. Errors: those of `write`.
  void ChangeWriter(std::function<void(const Report&)> write) {
    const std::lock_guard lock(mutex_);
    write_ = std::move(write);
  }
  // Nothing is written any more: the work ended with an error.
  void Abandon() {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  // The end of the work. Errors: those of `write`.
  void Finish(const Report& report) {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    write_(report);
  }

 private:
  void GiveUp() {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    try {
      write_(so_far_);
    } catch (const Error& error) {
      PrintNotice(fmt::format("kvcheck: error: {}: {}", error.context(), error.message()));
    }
    std::cout.flush();
    RemoveTemporaries();
    // Other threads are at work: nothing of theirs may be destroyed.
    _exit(kExitInterrupted);
  }

  std::mutex mutex_;
  bool finished_ = false;
  Report so_far_;
  std::function<void(const Report&)> write_;
  InterruptWatch watch_;  // ends before what it writes
};

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_REPORT_ONCE_H_
