// q4_0 and q5_0 as llama.cpp writes them, one f32 operation at a time (formats.md, section C): d =
// M / -h for the element M of largest magnitude, where h is half the number of codes, so that M has
// the code -h; code x / d, of which h - 1 is the largest.

#include <array>
#include <cstdint>

#include "reference/formats/ggml_blocks.h"
#include "reference/spec/q4_0_format.h"
#include "reference/spec/q5_0_format.h"

namespace kvcheck {
namespace {

template <class Format, const GgmlPacking& kPacking>
struct SignedBlocks {
  static constexpr int kHalf = -Format::kLowest;
  static_assert(Format::kHighest == kHalf - 1);

  static float Step(GgmlValues x) { return LargestElement(x) / static_cast<float>(-kHalf); }

  static void Encode(GgmlEncoder, GgmlValues x, std::byte* block) {
    const float step = Step(x);
    const float reciprocal = step != 0 ? 1.0f / step : 0.0f;
    WriteHalf(step, block);
    std::array<uint8_t, kGgmlBlock> codes;
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] =
          TruncatedCode(x[i] * reciprocal + (static_cast<float>(kHalf) + 0.5f), 2 * kHalf - 1);
    }
    kPacking.write(codes, block + 2);
  }

  static GgmlCodes Read(const std::byte* block) {
    GgmlCodes read;
    read.scale = ReadHalf(block);
    kPacking.read(block + 2, read.codes);
    for (int& code : read.codes) code -= kHalf;
    return read;
  }

  static std::unique_ptr<FormatArithmetic> Make() {
    return MakeGgmlArithmetic({.block_bytes = Format::kBlockBytes,
                               .first_code = 2,
                               .lowest = Format::kLowest,
                               .highest = Format::kHighest,
                               // Two relative roundings, of the reciprocal and of the product; one
                               // of the sum with h + 0.5, which is below 2 h + 1.
                               .arithmetic_of_value = 3,
                               .arithmetic_of_step = 2 * kHalf + 1,
                               .depends_on_writer = false,
                               // The scale of a block of zeros is -0 of ggml, and of gguf-py the
                               // zero of its data.
                               .free_bits_of_zeros = 0x8000,
                               .step = Step,
                               .minimum = nullptr,
                               .encode = Encode,
                               .read = Read,
                               .errors = nullptr,
                               .freedoms = nullptr});
  }
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q4_0Format&) {
  return SignedBlocks<Q4_0Format, kNibbles>::Make();
}

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q5_0Format&) {
  return SignedBlocks<Q5_0Format, kFiveBits>::Make();
}

}  // namespace kvcheck
