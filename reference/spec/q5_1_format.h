// ggml's q5_1: a block is an f16 scale d, an f16 minimum m, 32 high bits and 32 nibbles, 24 bytes;
// its values are q d + m. High bits and nibbles lie as in q5_0.

#ifndef REFERENCE_SPEC_Q5_1_FORMAT_H_
#define REFERENCE_SPEC_Q5_1_FORMAT_H_

#include <cstdint>
#include <string_view>

#include "reference/spec/ggml_format.h"

namespace kvcheck {

struct Q5_1Format : GgmlFormat<Q5_1Format> {
  static constexpr std::string_view kName = "q5_1";
  static constexpr int64_t kBlockBytes = 24;
  static constexpr int64_t kLowest = 0;
  static constexpr int64_t kHighest = 31;
  bool operator==(const Q5_1Format&) const = default;

  // Its writers agree, but for the sign of zero.
  bool Leaves(CodecChoice) const { return false; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_Q5_1_FORMAT_H_
