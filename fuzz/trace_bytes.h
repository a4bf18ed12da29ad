// Bytes as a trace of cache operations, for searches that know bytes alone (libFuzzer, RapidCheck):
// every input is a trace, near inputs are near traces, and a shorter input is a shorter trace. The
// setup is always legal; some operations are not, and must be refused.
//
// The first kSetupBytes say the setup, each operation takes what it needs of the rest, and where
// bytes are missing they are 0. Numbers are small, so that a few hundred bytes reach wrapped rings,
// pending prefills and merges of rows with different histories.

#ifndef FUZZ_TRACE_BYTES_H_
#define FUZZ_TRACE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "reference/spec/trace.h"

namespace kvcheck {

inline constexpr size_t kSetupBytes = 14;
inline constexpr int kMostTraceOps = 64;
// Each may double a batch: 4 rows become at most 256.
inline constexpr int kMostExtends = 6;

// A function of the bytes alone. ValidateCacheCase accepts what it gives.
CacheCase TraceOfBytes(std::span<const uint8_t> bytes);

}  // namespace kvcheck

#endif  // FUZZ_TRACE_BYTES_H_
