// How fast attention reads stored K and V: milliseconds of decode or prefill over contexts of
// growing length, and the share of a plain read of as many bytes (the probe). Rounds are
// interleaved: the probe, then each format once, so that other load falls on all alike. Medians
// over rounds, of the share with quartiles.
//
//   attention_speed [--threads N] [--rounds N] [--formats f16,affine:4:g64:f16] [--tokens 1024,...]
//                   [--layout head|token|both] [--batch N] [--portable] [--prefill L]

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/attention/probes.h"
#include "bench/attention/stored_problem.h"
#include "bench/timing.h"
#include "optimized/attention/attention.h"

namespace kvcheck {
namespace {

struct Options {
  int threads = 2;
  int rounds = 7;
  std::vector<std::string> formats = {"f32", "f16", "bf16", "affine:8:g64:f16", "affine:4:g64:f16"};
  std::vector<int64_t> tokens = {1024, 4096, 16384, 32768};
  std::string layout = "head";
  int64_t batch = 1;
  int64_t prefill = 0;  // queries; 0: decode
  bool portable = false;
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  CLI::App app("Attention over stored K and V, beside a plain read of as many bytes");
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 64));
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  app.add_option("--formats", options.formats)->delimiter(',');
  app.add_option("--tokens", options.tokens)->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--layout", options.layout)->check(CLI::IsMember({"head", "token", "both"}));
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber);
  app.add_option("--prefill", options.prefill)->check(CLI::NonNegativeNumber);
  app.add_flag("--portable", options.portable);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

void Measure(const Options& options, int64_t tokens) {
  std::vector<std::unique_ptr<StoredProblem>> problems;
  std::vector<std::string> names;
  for (const std::string& format : options.formats) {
    for (const bool by_token : {false, true}) {
      if (options.layout != "both" && by_token != (options.layout == "token")) continue;
      problems.push_back(std::make_unique<StoredProblem>(
          StoredProblem::Size{format, tokens, options.batch, std::max<int64_t>(1, options.prefill),
                              by_token, false, options.portable}));
      names.push_back(format + (by_token ? " token-major" : ""));
    }
  }
  optimized::Attention attention(options.threads);
  ReadProbe probe(options.threads);
  std::vector<std::vector<double>> seconds(problems.size()), share(problems.size());
  std::vector<double> read;
  // Short problems are repeated within a round.
  const int repeats = static_cast<int>(std::max<int64_t>(1, 16384 / (tokens * options.batch)));
  for (int round = -1; round < options.rounds; ++round) {
    for (size_t i = 0; i < problems.size(); ++i) {
      const StoredProblem& problem = *problems[i];
      const int64_t bytes = problem.Bytes();
      double of_read = 1e9;
      for (int r = 0; r < 3; ++r) {
        of_read = std::min(of_read, probe.Seconds(bytes));
      }
      attention.Run(problem.shape(), problem.batch());
      const double start = Now();
      for (int r = 0; r < repeats; ++r) attention.Run(problem.shape(), problem.batch());
      const double once = (Now() - start) / repeats;
      if (round < 0) continue;  // warms
      seconds[i].push_back(once);
      share[i].push_back(of_read / once);
      read.push_back(static_cast<double>(bytes) / of_read / 1e9);
    }
  }
  fmt::print("{} tokens: probe {:.1f} GB/s\n", tokens, Quantile(read, 0.5));
  for (size_t i = 0; i < problems.size(); ++i) {
    const double once = Quantile(seconds[i], 0.5);
    const auto bytes = static_cast<double>(problems[i]->Bytes());
    fmt::print("  {:28} {:9.3f} ms {:7.2f} GB/s  {:5.1f} % of the probe [{:.1f}, {:.1f}]", names[i],
               once * 1e3, bytes / once / 1e9, 100 * Quantile(share[i], 0.5),
               100 * Quantile(share[i], 0.25), 100 * Quantile(share[i], 0.75));
    const double flops = problems[i]->Flops();
    fmt::print("  {:6.1f} GFLOP/s\n", flops / once / 1e9);
  }
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  const kvcheck::Options options = kvcheck::ParseOptions(argc, argv);
  for (const int64_t tokens : options.tokens) kvcheck::Measure(options, tokens);
  return 0;
}
