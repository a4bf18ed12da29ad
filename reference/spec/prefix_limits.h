// The largest numbers that a prefix case may name.

#ifndef REFERENCE_SPEC_PREFIX_LIMITS_H_
#define REFERENCE_SPEC_PREFIX_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace kvcheck::prefix_limits {

inline constexpr int64_t kMaxNumber = (int64_t{1} << 31) - 1;  // of tokens' ids too
inline constexpr int64_t kMaxExtent = int64_t{1} << 16;
inline constexpr int64_t kMaxTokens = int64_t{1} << 20;  // of a prompt, and of a capacity
// Tokens of a whole case times the bytes of one: what the judge knows of it is held in memory.
inline constexpr int64_t kMaxCaseBytes = int64_t{1} << 34;
inline constexpr size_t kMaxOps = size_t{1} << 20;
inline constexpr size_t kMaxIdentityBytes = 1024;

}  // namespace kvcheck::prefix_limits

#endif  // REFERENCE_SPEC_PREFIX_LIMITS_H_
