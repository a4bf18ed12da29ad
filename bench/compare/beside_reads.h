// Passes over two files in turns with the best reads of the same files (read_probe.h), each in a
// process of its own, so that a slow moment of the machine meets all and the peak of resident
// memory is that of one.

#ifndef BENCH_COMPARE_BESIDE_READS_H_
#define BENCH_COMPARE_BESIDE_READS_H_

#include <functional>
#include <string>
#include <vector>

namespace kvcheck {

struct MeasuredPass {
  std::string name;
  // Runs in a child. Wall-clock seconds of the pass; it may _exit with another code than 0.
  std::function<double()> seconds;
};
struct PassBesideReads {
  double share = 0;         // of the bytes a second of the best read
  double resident_mib = 0;  // the most of all rounds
};

// The best of so many rounds, in bytes of both files, as long as the shorter. Prints a line a
// measurement. Exits with 2 where one fails.
std::vector<PassBesideReads> PrintBesideReads(const std::string& a, const std::string& b,
                                              const std::vector<MeasuredPass>& passes, int rounds);

}  // namespace kvcheck

#endif  // BENCH_COMPARE_BESIDE_READS_H_
