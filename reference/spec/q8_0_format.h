// ggml's q8_0: a block is an f16 scale d and 32 signed bytes q, 34 bytes; its values are q d.

#ifndef REFERENCE_SPEC_Q8_0_FORMAT_H_
#define REFERENCE_SPEC_Q8_0_FORMAT_H_

#include <cstdint>
#include <string_view>

#include "reference/spec/ggml_format.h"

namespace kvcheck {

struct Q8_0Format : GgmlFormat<Q8_0Format> {
  static constexpr std::string_view kName = "q8_0";
  static constexpr int64_t kBlockBytes = 34;
  static constexpr int64_t kLowest = -128;  // never written, and read as it stands
  static constexpr int64_t kHighest = 127;
  bool operator==(const Q8_0Format&) const = default;

  // Ties of codes.
  bool Leaves(CodecChoice choice) const { return choice == CodecChoice::kGgmlEncode; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_Q8_0_FORMAT_H_
