// The C++ side of judge_cost.py: judges the same attention as often as it is asked.
//
//   judge_calls CASE PLAN THREADS [RULE]   CASE: attention of plain types without a mask array,
//                                          data=REGIME:SEED; RULE: statistics (default) or bound
//
// For each line on stdin one line on stdout: outcome, seconds of the clock, seconds of the
// processor, and by how many MiB the peak of memory grew over what inputs and output took.

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <variant>

#include "reference/spec/case.h"
#include "tools/corridor/kvcheck.h"

namespace kvcheck {
namespace {

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The peak of memory since the last call of this, which begins a new one (Linux; else NaN).
double PeakMiB() {
  double peak = std::nan("");
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) peak = std::atof(line.c_str() + 6) / 1024;
  }
  std::ofstream reset("/proc/self/clear_refs");
  reset << 5 << std::flush;
  return reset ? peak : std::nan("");
}

Array View(const Tensor& tensor) {
  Array array{tensor.dtype, {}, tensor.bytes.data()};
  for (const Axis& axis : tensor.shape.axes) array.extents.push_back(axis.extent);
  return array;
}

int Main(const std::string& text, const std::string& plan, int threads, Rule rule) {
  Settings settings;
  settings.plan = plan;
  settings.threads = threads;
  settings.rule = rule;
  const AttentionCase c = std::get<AttentionCase>(ParseCase(text));
  const TensorMap inputs = DrawInputs(text);
  const TensorMap outputs = AnswerCase(text, {}, "", settings);
  AttentionCall call;
  call.q = View(Get(inputs, "q"));
  call.k = View(Get(inputs, "k"));
  call.v = View(Get(inputs, "v"));
  call.out = View(Get(outputs, "out"));
  call.scale = c.scale;
  call.mask = Print(c.mask);
  std::string line;
  while (std::getline(std::cin, line)) {
    PeakMiB();
    const double before = PeakMiB();  // what is there now
    const auto start = std::chrono::steady_clock::now();
    const double processor = ProcessorSeconds();
    const Verdict verdict = JudgeAttention(call, settings);
    const double used = ProcessorSeconds() - processor;
    const std::chrono::duration<double> clock = std::chrono::steady_clock::now() - start;
    fmt::print("{} {} {} {}\n", Name(verdict.outcome), clock.count(), used, PeakMiB() - before);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  const std::optional<kvcheck::Rule> rule = kvcheck::ParseRule(argc == 5 ? argv[4] : "statistics");
  if (argc < 4 || argc > 5 || !rule) {
    fmt::print(stderr, "usage: judge_calls CASE PLAN THREADS [statistics|bound]\n");
    return 2;
  }
  try {
    return kvcheck::Main(argv[1], argv[2], std::atoi(argv[3]), *rule);
  } catch (const kvcheck::Error& error) {
    fmt::print(stderr, "judge_calls: {}\n", error.what());
    return 2;
  }
}
