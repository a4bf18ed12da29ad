// ggml's q4_0: a block is an f16 scale d and 32 nibbles q, 18 bytes; its values are (q - 8) d. Byte
// j after the scale holds channel j in its low nibble and channel j + 16 in its high one.

#ifndef REFERENCE_SPEC_Q4_0_FORMAT_H_
#define REFERENCE_SPEC_Q4_0_FORMAT_H_

#include <cstdint>
#include <string_view>

#include "reference/spec/ggml_format.h"

namespace kvcheck {

struct Q4_0Format : GgmlFormat<Q4_0Format> {
  static constexpr std::string_view kName = "q4_0";
  static constexpr int64_t kBlockBytes = 18;
  static constexpr int64_t kLowest = -8;
  static constexpr int64_t kHighest = 7;
  bool operator==(const Q4_0Format&) const = default;

  // Its writers agree, but for the sign of zero.
  bool Leaves(CodecChoice) const { return false; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_Q4_0_FORMAT_H_
