// ggml's q5_0: a block is an f16 scale d, 32 high bits and 32 nibbles, 22 bytes; its values are (q
// - 16) d. Nibbles lie as in q4_0; bit i of the little-endian high bits is the bit of 16 of channel
// i.

#ifndef REFERENCE_SPEC_Q5_0_FORMAT_H_
#define REFERENCE_SPEC_Q5_0_FORMAT_H_

#include <cstdint>
#include <string_view>

#include "reference/spec/ggml_format.h"

namespace kvcheck {

struct Q5_0Format : GgmlFormat<Q5_0Format> {
  static constexpr std::string_view kName = "q5_0";
  static constexpr int64_t kBlockBytes = 22;
  static constexpr int64_t kLowest = -16;
  static constexpr int64_t kHighest = 15;
  bool operator==(const Q5_0Format&) const = default;

  // Its writers agree, but for the sign of zero.
  bool Leaves(CodecChoice) const { return false; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_Q5_0_FORMAT_H_
