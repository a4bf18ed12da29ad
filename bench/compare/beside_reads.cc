#include "bench/compare/beside_reads.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "bench/compare/read_probe.h"

namespace kvcheck {
namespace {

struct Measurement {
  double seconds = 1e300;
  double cpu_seconds = 1e300;
  double resident_mib = 0;
};

struct Line {
  MeasuredPass pass;
  bool is_probe = true;
  Measurement best = {};
};

Measurement InChild(const MeasuredPass& pass) {
  int ends[2];
  if (pipe(ends) != 0) std::exit(2);
  const pid_t child = fork();
  if (child == 0) {
    const double seconds = pass.seconds();
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
    fmt::print(stderr, "a measurement failed: {}\n", pass.name);
    std::exit(2);
  }
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  result.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  result.resident_mib = static_cast<double>(usage.ru_maxrss) / 1024;
  return result;
}

std::vector<Line> Probes(const std::string& a, const std::string& b) {
  std::vector<Line> lines;
  for (const int threads : {1, 2}) {
    for (const auto& [by, name] : {std::pair{ReadBy::kMapping, "mapped"},
                                   {ReadBy::kWindows, "windows of 4 MiB"},
                                   {ReadBy::kReading, "pread"}}) {
      lines.push_back({{fmt::format("read, {}, {} threads", name, threads),
                        [=, by = by] { return ProbeSeconds(a, b, by, threads); }}});
    }
  }
  return lines;
}

}  // namespace

std::vector<PassBesideReads> PrintBesideReads(const std::string& a, const std::string& b,
                                              const std::vector<MeasuredPass>& passes, int rounds) {
  std::vector<Line> lines = Probes(a, b);
  for (const MeasuredPass& pass : passes) lines.push_back({pass, false});
  for (int i = 0; i < rounds; ++i) {
    for (Line& line : lines) {
      const Measurement measured = InChild(line.pass);
      line.best.seconds = std::min(line.best.seconds, measured.seconds);
      line.best.cpu_seconds = std::min(line.best.cpu_seconds, measured.cpu_seconds);
      line.best.resident_mib = std::max(line.best.resident_mib, measured.resident_mib);
    }
  }
  const double gigabytes = 2e-9 * static_cast<double>(std::min(std::filesystem::file_size(a),
                                                               std::filesystem::file_size(b)));
  double best_read = 0;
  for (const Line& line : lines) {
    if (line.is_probe) best_read = std::max(best_read, gigabytes / line.best.seconds);
  }
  std::vector<PassBesideReads> results;
  for (const Line& line : lines) {
    const double rate = gigabytes / line.best.seconds;
    fmt::print("{:34} {:6.2f} GB/s  {:3.0f} % of the best read  {:5.2f} s of CPU", line.pass.name,
               rate, 100 * rate / best_read, line.best.cpu_seconds);
    if (!line.is_probe) {
      fmt::print("  {:.0f} MiB resident", line.best.resident_mib);
      results.push_back({rate / best_read, line.best.resident_mib});
    }
    fmt::print("\n");
  }
  return results;
}

}  // namespace kvcheck
