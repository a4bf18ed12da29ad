// How fast two files in the page cache can be read at all: the measure for `kvcheck compare`. Every
// byte of both enters one `or`; each thread takes a part of both files.

#ifndef BENCH_COMPARE_READ_PROBE_H_
#define BENCH_COMPARE_READ_PROBE_H_

#include <cstdint>
#include <string>

namespace kvcheck {

enum class ReadBy {
  kMapping,  // of the whole files, in page tables that an earlier round filled
  kWindows,  // of 4 MiB, mapped and given back within the timing
  kReading,  // pread into 256 KiB
};

// Seconds of one round over both files. Exits with a message when a file cannot be read.
double ProbeSeconds(const std::string& expected, const std::string& got, ReadBy by, int threads);

}  // namespace kvcheck

#endif  // BENCH_COMPARE_READ_PROBE_H_
