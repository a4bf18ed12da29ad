// The long form of the test of damaged golden files:
//
//   damaged_files [COUNT [SEED]]
//
// prints a table of what reading COUNT damaged files did (2,000 where it is not said), then inverts
// every byte of a small file, and fails when one file was read as other content without complaint.

#include <fmt/format.h>

#include <cstdlib>

#include "tests/tools/process/damaged_files.h"

int main(int argc, char** argv) {
  using namespace kvcheck::golden_damage;
  const int count = argc > 1 ? std::atoi(argv[1]) : 2000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const Campaign campaign = RunCampaign(count, seed, 2000);
  fmt::print("{} damaged files, seed {}\n{}{:.1f} s, {:.2f} ms a file, slowest {:.2f} s\n", count,
             seed, ToTable(campaign.counts), campaign.total_s, 1e3 * campaign.total_s / count,
             campaign.slowest_s);
  const OutcomeCounts flips = RunByteFlips(1);
  fmt::print("every byte of a small file inverted: {}", ToLine(flips));
  int wrong = 0;
  for (Outcome outcome : {Outcome::kSilentChange, Outcome::kWrongError}) {
    wrong += Total(campaign.counts, outcome) + CountOf(flips, outcome);
  }
  return wrong == 0 ? 0 : 1;
}
