// A measurement of `kvcheck bench` from its beginning to its report.

#ifndef TOOLS_KVCHECK_BENCH_RUN_H_
#define TOOLS_KVCHECK_BENCH_RUN_H_

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tools/corridor/cancel.h"
#include "tools/kvcheck/progress_line.h"
#include "tools/kvcheck/report_once.h"
#include "tools/report/summary.h"

namespace kvcheck {

template <typename Figures>
struct Measured {
  std::vector<Figures> figures;
  bool interrupted = false;  // they are what was measured until then
};

// Shown by the thread that measures, cleared by the one that reports.
class SharedProgress : public Progress {
 public:
  bool IsDue() const override {
    const std::lock_guard lock(mutex_);
    return line_.IsDue();
  }
  void Show(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    line_.Show(text);
  }
  void Clear() override {
    const std::lock_guard lock(mutex_);
    line_.Clear();
  }

 private:
  mutable std::mutex mutex_;
  ProgressLine line_{/*quiet=*/false};
};

// report: begun, with nothing measured. write: of what this measures. The exit code.
template <typename Figures>
int Measure(ReportOnce<Measured<Figures>>* report,
            const std::function<void(const Measured<Figures>&)>& write,
            const std::function<std::vector<Figures>(
                Progress*, const std::function<void(std::vector<Figures>)>&)>& measure) {
  SharedProgress progress;
  report->ChangeWriter([&](const Measured<Figures>& measured) {
    progress.Clear();
    write(measured);
  });
  Measured<Figures> measured;
  try {
    measured.figures = measure(
        &progress, [&](std::vector<Figures> figures) { report->Set({std::move(figures), true}); });
  } catch (const Cancelled&) {
    measured = report->SoFar();
  } catch (...) {
    report->Abandon();
    throw;
  }
  report->Finish(measured);
  return measured.interrupted ? kExitInterrupted : kExitPassed;
}

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_BENCH_RUN_H_
