// The first pass over two whole files, taken as one tensor, beside the best read of the same files
// in the same run, and the resident memory of the pass.
//
//   compare_files FILE FILE [DTYPE [TOLERANCE [REPEATS]]]     f32 abs:1e-6,rel:1e-3 5
//
// Rounds of all measurements take turns, so that a slow moment of the machine meets all; the best
// of each is printed, in bytes of both files per second of wall-clock time. The CPU time of a
// mapped read holds the making of its page tables.

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/compare/read_probe.h"
#include "golden/mapped_file.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "reference/spec/text.h"
#include "tools/compare/first_pass_run.h"

namespace kvcheck {
namespace {

struct Measurement {
  double seconds = 1e300;
  double cpu_seconds = 1e300;
  double resident_mib = 0;
};

// In a process of its own: the peak of resident memory is its own as well.
Measurement InChild(const std::function<double()>& measure) {
  int ends[2];
  if (pipe(ends) != 0) std::exit(2);
  const pid_t child = fork();
  if (child == 0) {
    const double seconds = measure();
    const bool is_written = write(ends[1], &seconds, sizeof(seconds)) == sizeof(seconds);
    _exit(is_written ? 0 : 2);
  }
  close(ends[1]);
  Measurement result;
  const bool is_read = read(ends[0], &result.seconds, sizeof(double)) == sizeof(double);
  close(ends[0]);
  int status = 0;
  struct rusage usage{};
  if (wait4(child, &status, 0, &usage) != child || status != 0 || !is_read) {
    fmt::print(stderr, "compare_files: a measurement failed\n");
    std::exit(2);
  }
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  result.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  result.resident_mib = static_cast<double>(usage.ru_maxrss) / 1024;
  return result;
}

double PassSeconds(const std::string& expected, const std::string& got, DType dtype,
                   const PassRule& rule, int threads) {
  try {
    const auto start = std::chrono::steady_clock::now();
    const MappedFile a(expected);
    const MappedFile b(got);
    PassPair pair;
    pair.expected.file = &a;
    pair.got.file = &b;
    pair.dtype = dtype;
    pair.elements = std::min(a.size(), b.size()) / static_cast<int64_t>(SizeInBytes(dtype));
    pair.rule = rule;
    const PassSummary summary = RunFirstPass({&pair, 1}, threads).front();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (threads == 1) {
      fmt::print(stderr, "{} of {} elements not certified, max abs {} rel {} ulp {} rms {}\n",
                 summary.not_certified, summary.elements, summary.max_abs, summary.max_rel,
                 summary.max_ulp, summary.RmsAbs());
    }
    return seconds;
  } catch (const Error& error) {
    fmt::print(stderr, "compare_files: {}: {}\n", error.context(), error.message());
    _exit(2);
  }
}

struct Line {
  std::string name;
  bool is_probe;
  std::function<double()> measure;
  Measurement best = {};
};

int Main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: compare_files FILE FILE [DTYPE [TOLERANCE [REPEATS]]]\n");
    return 2;
  }
  const std::string expected = argv[1];
  const std::string got = argv[2];
  const DType dtype = ParseDType(argc > 3 ? argv[3] : "f32").value();
  const std::string tolerance = argc > 4 ? argv[4] : "abs:1e-6,rel:1e-3";
  const int repeats = argc > 5 ? std::atoi(argv[5]) : 5;
  const PassRule rule = PassRuleOf(ParseToleranceRule(WholeLine(tolerance)), kTensorPolicy).value();

  std::vector<Line> lines;
  for (const int threads : {1, 2}) {
    for (const auto& [by, name] : {std::pair{ReadBy::kMapping, "mapped"},
                                   {ReadBy::kWindows, "windows of 4 MiB"},
                                   {ReadBy::kReading, "pread"}}) {
      lines.push_back({fmt::format("read, {}, {} threads", name, threads), true,
                       [=, by = by] { return ProbeSeconds(expected, got, by, threads); }});
    }
    lines.push_back({fmt::format("first pass, {} threads", threads), false,
                     [=] { return PassSeconds(expected, got, dtype, rule, threads); }});
  }
  for (int i = 0; i < repeats; ++i) {
    for (Line& line : lines) {
      const Measurement measured = InChild(line.measure);
      line.best.seconds = std::min(line.best.seconds, measured.seconds);
      line.best.cpu_seconds = std::min(line.best.cpu_seconds, measured.cpu_seconds);
      line.best.resident_mib = std::max(line.best.resident_mib, measured.resident_mib);
    }
  }
  const MappedFile a(expected);
  const double gigabytes = 2e-9 * static_cast<double>(a.size());
  double best_read = 0;
  for (const Line& line : lines) {
    if (line.is_probe) best_read = std::max(best_read, gigabytes / line.best.seconds);
  }
  for (const Line& line : lines) {
    const double rate = gigabytes / line.best.seconds;
    fmt::print("{:34} {:6.2f} GB/s  {:3.0f} % of the best read  {:5.2f} s of CPU", line.name, rate,
               100 * rate / best_read, line.best.cpu_seconds);
    if (!line.is_probe) fmt::print("  {:.0f} MiB resident", line.best.resident_mib);
    fmt::print("\n");
  }
  return 0;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
