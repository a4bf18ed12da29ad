// ggml's q4_1: a block is an f16 scale d, an f16 minimum m and 32 nibbles q, 20 bytes; its values
// are q d + m. Nibbles lie as in q4_0.

#ifndef REFERENCE_SPEC_Q4_1_FORMAT_H_
#define REFERENCE_SPEC_Q4_1_FORMAT_H_

#include <cstdint>
#include <string_view>

#include "reference/spec/ggml_format.h"

namespace kvcheck {

struct Q4_1Format : GgmlFormat<Q4_1Format> {
  static constexpr std::string_view kName = "q4_1";
  static constexpr int64_t kBlockBytes = 20;
  static constexpr int64_t kLowest = 0;
  static constexpr int64_t kHighest = 15;
  bool operator==(const Q4_1Format&) const = default;

  // Its writers agree, but for the sign of zero.
  bool Leaves(CodecChoice) const { return false; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_Q4_1_FORMAT_H_
