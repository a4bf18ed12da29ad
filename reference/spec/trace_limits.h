// The largest numbers that a trace may name.

#ifndef REFERENCE_SPEC_TRACE_LIMITS_H_
#define REFERENCE_SPEC_TRACE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace kvcheck::trace_limits {

// Numbers of operations are small enough that no sum of them overflows, and may be negative: a
// cache has to refuse those.
inline constexpr int64_t kMaxNumber = int64_t{1} << 31;
inline constexpr int64_t kMaxExtent = int64_t{1} << 16;
inline constexpr int64_t kMaxColumns = int64_t{1} << 20;
inline constexpr size_t kMaxOps = size_t{1} << 20;

}  // namespace kvcheck::trace_limits

#endif  // REFERENCE_SPEC_TRACE_LIMITS_H_
