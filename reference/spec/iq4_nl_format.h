// ggml's iq4_nl: a block is an f16 scale d and 32 nibbles, 18 bytes, which lie as in q4_0; the
// value of a nibble is that of a table of 16 integers, times d. The table is finer around 0.

#ifndef REFERENCE_SPEC_IQ4_NL_FORMAT_H_
#define REFERENCE_SPEC_IQ4_NL_FORMAT_H_

#include <cstdint>
#include <string_view>

#include "reference/spec/ggml_format.h"

namespace kvcheck {

struct Iq4NlFormat : GgmlFormat<Iq4NlFormat> {
  static constexpr std::string_view kName = "iq4_nl";
  static constexpr int64_t kBlockBytes = 18;
  static constexpr int64_t kLowest = -127;
  static constexpr int64_t kHighest = 113;
  bool operator==(const Iq4NlFormat&) const = default;

  // Writers differ in the last bit of d, by the order of their sums.
  bool Leaves(CodecChoice) const { return false; }
  // After q4_0, which has as many bytes and a grid of even steps.
  int64_t Rank() const { return 51 + kBlockBytes; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_IQ4_NL_FORMAT_H_
