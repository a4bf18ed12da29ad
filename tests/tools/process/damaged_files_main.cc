// The long form of the tests of damaged files:
//
//   damaged_files [COUNT [SEED]]
//
// prints tables of what reading COUNT damaged files of each kind did (2,000 where it is not said):
// golden files, plain HDF5, safetensors; then inverts every byte of a small golden file. Fails when
// one file was read as other content without complaint.

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "tests/tools/process/damaged_files.h"
#include "tests/tools/process/damaged_plain.h"

// A hang is a row of the table, and no failure.
constexpr std::chrono::milliseconds kHangs{2000};

int main(int argc, char** argv) {
  using namespace kvcheck::golden_damage;
  const int count = argc > 1 ? std::atoi(argv[1]) : 2000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  int wrong = 0;
  const auto report = [&](const char* kind, const Campaign& campaign) {
    fmt::print("{} damaged {} files, seed {}\n{}{:.1f} s, {:.2f} ms a file, slowest {:.2f} s\n\n",
               count, kind, seed, ToTable(campaign.counts), campaign.total_s,
               1e3 * campaign.total_s / count, campaign.slowest_s);
    for (Outcome outcome : {Outcome::kSilentChange, Outcome::kWrongError}) {
      wrong += Total(campaign.counts, outcome);
    }
  };
  report("golden", RunCampaign(count, seed, kHangs));
  report("plain HDF5", RunPlainHdf5Campaign(count, seed, kHangs));
  report("safetensors", RunSafetensorsCampaign(count, seed, kHangs));
  const OutcomeCounts flips = RunByteFlips(1, kHangs);
  fmt::print("every byte of a small golden file inverted: {}", ToLine(flips));
  for (Outcome outcome : {Outcome::kSilentChange, Outcome::kWrongError}) {
    wrong += CountOf(flips, outcome);
  }
  return wrong == 0 ? 0 : 1;
}
