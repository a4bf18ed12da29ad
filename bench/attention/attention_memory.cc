// What attention needs beside stored K and V: the growth of the peak of resident memory during the
// first call over a long context, beside what a copy of K and V in 16 and 32 bits would take.
//
//   attention_memory [--formats q8_0,q4_1/q5_0,...] [--tokens N] [--queries N] [--threads N]
//
// 32 query heads, 8 key/value heads, 128 channels, K and V of one format or of two. Each is
// measured in a child of its own, after the problem stands and its pages are there; Linux alone
// says the peak. Exit status: 1 where memory grew by half of a copy in 16 bits or more.

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/attention/stored_problem.h"
#include "optimized/attention/attention.h"

namespace kvcheck {
namespace {

constexpr double kMiB = 1 << 20;

struct Options {
  std::vector<std::string> formats = {"f16",
                                      "q8_0",
                                      "q5_1",
                                      "q5_0",
                                      "q4_1",
                                      "q4_0",
                                      "iq4_nl",
                                      "q4_1/q5_0",
                                      "affine:4:g64:f16",
                                      "hadamard:128:affine:4:g64:f16",
                                      "turboquant:4:g128:f16",
                                      "turboquant:3.5:g128:hffffffff00000000ffffffff00000000:f16"};
  int64_t tokens = 65536;
  int64_t queries = 1;
  int threads = 2;
};

[[noreturn]] void Fail(const std::string& why) {
  fmt::print(stderr, "attention_memory: {}\n", why);
  std::exit(2);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) Fail(key + " needs a value");
    const std::string value = argv[i + 1];
    if (key == "--formats") {
      options.formats.clear();
      std::stringstream stream(value);
      for (std::string part; std::getline(stream, part, ',');) options.formats.push_back(part);
    } else if (key == "--tokens") {
      options.tokens = std::atoll(value.c_str());
    } else if (key == "--queries") {
      options.queries = std::atoll(value.c_str());
    } else if (key == "--threads") {
      options.threads = std::atoi(value.c_str());
    } else {
      Fail("there is no option " + key);
    }
  }
  if (options.tokens < 1 || options.queries < 1 || options.threads < 1) Fail("a count below 1");
  return options;
}

// Bytes, of a line of /proc/self/status.
double Status(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::atof(line.c_str() + name.size() + 1) * 1024;
  }
  Fail("no " + name + " in /proc/self/status");
}

// Bytes by which the peak grows.
double PeakGrowth(const Options& options, const std::string& format, double* stored) {
  StoredProblem::Size size;
  size.format = format;
  size.tokens = options.tokens;
  size.queries = options.queries;
  const StoredProblem problem(size);
  *stored = static_cast<double>(problem.Bytes());
  optimized::Attention attention(options.threads);
  {
    std::ofstream reset("/proc/self/clear_refs");
    if (!(reset << "5" << std::flush)) Fail("the peak cannot be set back");
  }
  const double before = Status("VmRSS");
  attention.Run(problem.shape(), problem.batch());
  return Status("VmHWM") - before;
}

int Measure(const Options& options, const std::string& format) {
  double stored = 0;
  const double growth = PeakGrowth(options, format, &stored);
  const double values = 2.0 * static_cast<double>(options.tokens * StoredProblem::kKvHeads) *
                        static_cast<double>(StoredProblem::kDim);
  fmt::print("{:<58}{:>12.1f}{:>12.1f}{:>12.1f}{:>14.2f}\n", format, stored / kMiB,
             2 * values / kMiB, 4 * values / kMiB, growth / kMiB);
  std::fflush(stdout);
  return growth < values ? 0 : 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  const kvcheck::Options options = kvcheck::ParseOptions(argc, argv);
  fmt::print("{} tokens, {} queries; MiB\n{:<58}{:>12}{:>12}{:>12}{:>14}\n", options.tokens,
             options.queries, "format", "K and V", "in 16 bits", "in 32 bits", "peak growth");
  std::fflush(stdout);
  int worst = 0;
  for (const std::string& format : options.formats) {
    const pid_t child = fork();
    if (child < 0) kvcheck::Fail("no child");
    if (child == 0) {
      try {
        std::exit(kvcheck::Measure(options, format));
      } catch (const std::exception& error) {
        kvcheck::Fail(error.what());
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 2);
  }
  return worst;
}
