// Reads damaged golden files as an untrusting tool does, and counts what happened.

#ifndef TESTS_TOOLS_PROCESS_DAMAGED_FILES_H_
#define TESTS_TOOLS_PROCESS_DAMAGED_FILES_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "golden/schema.h"
#include "tests/golden/damage.h"

namespace kvcheck::golden_damage {

// Reads the file in a supervised child with the limit (of no progress) for hangs.
Outcome ReadDamaged(const std::string& path, const GoldenFile& original,
                    std::chrono::milliseconds hang_limit);

struct Campaign {
  Counts counts{};
  double slowest_s = 0;
  double total_s = 0;
};

// Damages a small file, a file of every type, and the same from the Python writer, in turn, by
// every kind of damage in turn; file i has the seed `seed` + i. Prints the seed and kind of what
// must not happen to standard error.
Campaign RunCampaign(int files, uint64_t seed, std::chrono::milliseconds hang_limit);

// Inverts bytes 0, stride, 2 stride, ... of a small file, one at a time, many files to a child: a
// child that dies or hangs is replaced by one that goes on behind the byte that ended it.
OutcomeCounts RunByteFlips(size_t stride, std::chrono::milliseconds hang_limit);

}  // namespace kvcheck::golden_damage

#endif  // TESTS_TOOLS_PROCESS_DAMAGED_FILES_H_
