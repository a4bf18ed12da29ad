// q4_1 and q5_1 as llama.cpp writes them, one f32 operation at a time (formats.md, section C): m
// the least element, d = (max - m) / h for the largest code h, code (x - m) / d.

#include <array>
#include <cstdint>

#include "reference/formats/ggml_blocks.h"
#include "reference/spec/q4_1_format.h"
#include "reference/spec/q5_1_format.h"

namespace kvcheck {
namespace {

template <class Format, const GgmlPacking& kPacking>
struct RangedBlocks {
  static constexpr int kHighest = Format::kHighest;

  static float Step(GgmlValues x) { return RangeStep(x, static_cast<float>(kHighest)); }

  static void Encode(GgmlEncoder, GgmlValues x, std::byte* block) {
    const float step = Step(x);
    const float least = LeastElement(x);
    const float reciprocal = step != 0 ? 1.0f / step : 0.0f;
    WriteHalf(step, block);
    WriteHalf(least, block + 2);
    std::array<uint8_t, kGgmlBlock> codes;
    for (size_t i = 0; i < codes.size(); ++i) {
      const float steps = (x[i] - least) * reciprocal;
      codes[i] = TruncatedCode(steps + 0.5f, kHighest);
    }
    kPacking.write(codes, block + 4);
  }

  static GgmlCodes Read(const std::byte* block) {
    GgmlCodes read;
    read.scale = ReadHalf(block);
    read.minimum = ReadHalf(block + 2);
    kPacking.read(block + 4, read.codes);
    return read;
  }

  static std::unique_ptr<FormatArithmetic> Make() {
    return MakeGgmlArithmetic({.block_bytes = Format::kBlockBytes,
                               .first_code = 4,
                               .lowest = Format::kLowest,
                               .highest = Format::kHighest,
                               // Three relative roundings, of the difference, the reciprocal and
                               // the product; one of the sum with a half, which is below h + 1.
                               .arithmetic_of_value = 4,
                               .arithmetic_of_step = kHighest + 1,
                               .depends_on_writer = false,
                               .free_bits_of_zeros = 0,
                               .step = Step,
                               .minimum = LeastElement,
                               .encode = Encode,
                               .read = Read,
                               .errors = nullptr,
                               .freedoms = nullptr});
  }
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q4_1Format&) {
  return RangedBlocks<Q4_1Format, kNibbles>::Make();
}

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q5_1Format&) {
  return RangedBlocks<Q5_1Format, kFiveBits>::Make();
}

}  // namespace kvcheck
