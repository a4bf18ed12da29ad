// Faults of ggml's blocks (reference/spec/ggml_format.h). Rows of other formats stay as they are.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/formats/ggml_blocks.h"
#include "reference/numerics/convert.h"
#include "reference/spec/ggml_format.h"
#include "reference/spec/kv_format.h"
#include "tools/faults/codec_faults.h"

namespace kvcheck {
namespace {

constexpr size_t kChannels = static_cast<size_t>(kGgmlBlock);
constexpr size_t kNibbleBytes = kChannels / 2;
constexpr size_t kFifthBytes = kChannels / 8;

// Where the parts of a block lie; bytes 0: no block of ggml.
struct BlockParts {
  size_t bytes = 0;
  bool has_minimum = false;
  bool has_nibbles = false;
  bool has_fifth_bits = false;
};

BlockParts PartsOf(const KvFormat& format) {
  const Planes planes = PlanesOf(format, BlockOf(format));
  const std::optional<CodeGrid> grid = GridOf(format);
  if (planes.size() != 1 || planes[0].name != "blocks" || BlockOf(format) != kGgmlBlock || !grid) {
    return {};
  }
  BlockParts parts;
  parts.bytes = planes[0].Bytes();
  // Two f16 numbers before codes of 4 or 5 bits.
  parts.has_minimum =
      parts.bytes == 4 + kNibbleBytes || parts.bytes == 4 + kFifthBytes + kNibbleBytes;
  const size_t codes = parts.bytes - (parts.has_minimum ? 4 : 2);
  parts.has_fifth_bits = codes == kNibbleBytes + kFifthBytes;
  parts.has_nibbles = parts.has_fifth_bits || codes == kNibbleBytes;
  return parts;
}

// edit(parts, block, is_last) of every block, the last of its row or not.
template <typename Edit>
void ForEachBlock(const CodecCase& c, TensorMap* stored, Edit edit) {
  const BlockParts parts = PartsOf(c.format);
  if (parts.bytes == 0) return;
  std::vector<std::byte>& bytes = stored->at("blocks").bytes;
  const auto of_row = static_cast<size_t>(c.head_dim / kGgmlBlock);
  for (size_t b = 0; (b + 1) * parts.bytes <= bytes.size(); ++b) {
    edit(parts, bytes.data() + b * parts.bytes, (b + 1) % of_row == 0);
  }
}

std::array<std::byte, kNibbleBytes> NibblesOf(const BlockParts& parts, const std::byte* block) {
  std::array<std::byte, kNibbleBytes> nibbles;
  std::memcpy(nibbles.data(), block + parts.bytes - kNibbleBytes, nibbles.size());
  return nibbles;
}

// Numbers that the sixteen codes of a format with nibbles mean, with a scale of 1.
std::vector<double> Entries(const KvFormat& format) {
  const BlockParts parts = PartsOf(format);
  Tensor block(DType::kUInt8, {{"", 1}, {"", static_cast<int64_t>(parts.bytes)}});
  for (size_t j = 0; j < kNibbleBytes; ++j) {
    block.bytes[parts.bytes - kNibbleBytes + j] = static_cast<std::byte>(j);
  }
  const TensorMap stored = {{"blocks", std::move(block)}};
  std::vector<double> numbers = CodesAsNumbers(format, CodecRows(format, stored), 0, 1);
  numbers.resize(kNibbleBytes);
  return numbers;
}

bool HasUnevenSteps(const KvFormat& format) {
  const BlockParts parts = PartsOf(format);
  return parts.has_nibbles && !parts.has_fifth_bits &&
         GridOf(format)->highest - GridOf(format)->lowest > 15;
}

double Largest(std::span<const double> x) {
  double largest = 0;
  for (const double value : x) {
    if (std::fabs(value) > std::fabs(largest)) largest = value;
  }
  return largest;
}

void NibblesSwapped(const CodecCase& c, TensorMap* stored) {
  ForEachBlock(c, stored, [](const BlockParts& parts, std::byte* block, bool) {
    if (!parts.has_nibbles) return;
    for (size_t j = parts.bytes - kNibbleBytes; j < parts.bytes; ++j) {
      block[j] = block[j] << 4 | block[j] >> 4;
    }
  });
}

// Byte j has channels 2 j and 2 j + 1.
void NibblesOfNeighbours(const CodecCase& c, TensorMap* stored) {
  ForEachBlock(c, stored, [](const BlockParts& parts, std::byte* block, bool) {
    if (!parts.has_nibbles) return;
    const auto nibbles = NibblesOf(parts, block);
    const auto channel = [&](size_t i) {
      const std::byte byte = nibbles[i % kNibbleBytes];
      return i < kNibbleBytes ? byte & std::byte{15} : byte >> 4;
    };
    for (size_t j = 0; j < kNibbleBytes; ++j) {
      block[parts.bytes - kNibbleBytes + j] = channel(2 * j) | channel(2 * j + 1) << 4;
    }
  });
}

void LastBlockByHalf(const CodecCase& c, TensorMap* stored) {
  ForEachBlock(c, stored, [](const BlockParts& parts, std::byte* block, bool is_last) {
    if (is_last) std::fill(block + parts.bytes / 2, block + parts.bytes, std::byte{0});
  });
}

void ScaleOfBlockBefore(const CodecCase& c, TensorMap* stored) {
  std::array<std::byte, 2> before{};
  bool is_first = true;
  ForEachBlock(c, stored, [&](const BlockParts&, std::byte* block, bool is_last) {
    std::array<std::byte, 2> own{block[0], block[1]};
    if (!is_first) std::copy(before.begin(), before.end(), block);
    before = own;
    is_first = is_last;
  });
}

void MinimumZero(const CodecCase& c, TensorMap* stored) {
  ForEachBlock(c, stored, [](const BlockParts& parts, std::byte* block, bool) {
    if (parts.has_minimum) block[2] = block[3] = std::byte{0};
  });
}

void MinimumBeforeScale(const CodecCase& c, TensorMap* stored) {
  ForEachBlock(c, stored, [](const BlockParts& parts, std::byte* block, bool) {
    if (parts.has_minimum) std::swap_ranges(block, block + 2, block + 2);
  });
}

void FifthBitsZero(const CodecCase& c, TensorMap* stored) {
  ForEachBlock(c, stored, [](const BlockParts& parts, std::byte* block, bool) {
    std::byte* nibbles = block + parts.bytes - kNibbleBytes;
    if (parts.has_fifth_bits) std::fill(nibbles - kFifthBytes, nibbles, std::byte{0});
  });
}

// d = max|x| / half in place of M / -half, of formats whose codes go from -half to half - 1.
void ScaleOfMagnitude(const KvFormat& format, std::span<const double> x, std::byte* block) {
  const BlockParts parts = PartsOf(format);
  if (!parts.has_nibbles || parts.has_minimum || HasUnevenSteps(format)) return;
  const auto half = static_cast<float>(-GridOf(format)->lowest);
  const float step = std::fabs(static_cast<float>(Largest(x))) / half;
  if (!(step > 0) || !std::isfinite(step)) return;
  WriteHalf(step, block);
  std::array<uint8_t, kChannels> codes;
  for (size_t i = 0; i < kChannels; ++i) {
    const float steps = static_cast<float>(x[i]) * (1.0f / step) + half + 0.5f;
    codes[i] = TruncatedCode(steps, static_cast<int>(2 * half) - 1);
  }
  if (parts.has_fifth_bits) {
    WriteFiveBits(codes, block + 2);
  } else {
    WriteNibbles(codes, block + 2);
  }
}

void BytesOfOtherWriter(const KvFormat& format, std::span<const double> x, std::byte* block) {
  if (PartsOf(format).bytes == 0) return;
  Profile profile;
  profile.ggml_encode = GgmlEncoder::kX86;
  Tensor row(DType::kFloat32, {{"", 1}, {"", kGgmlBlock}});
  EncodeFrom(x, row.dtype, row.bytes.data());
  const TensorMap stored = EncodeRows(format, profile, row);
  std::copy(stored.at("blocks").bytes.begin(), stored.at("blocks").bytes.end(), block);
}

// The scale by which codes were found, in place of the one that fits them.
void TableScaleOfLargest(const KvFormat& format, std::span<const double> x, std::byte* block) {
  if (!HasUnevenSteps(format) || !std::isfinite(Largest(x))) return;
  WriteHalf(static_cast<float>(Largest(x)) / static_cast<float>(GridOf(format)->lowest), block);
}

// Codes found again by the scale that fits the first ones, as files of weights have them.
void TableCodesOfLastScale(const KvFormat& format, std::span<const double> x, std::byte* block) {
  const double scale = ReadHalf(block);
  if (!HasUnevenSteps(format) || scale == 0 || !std::isfinite(scale)) return;
  const std::vector<double> entries = Entries(format);
  std::array<uint8_t, kChannels> codes;
  for (size_t i = 0; i < kChannels; ++i) {
    size_t nearest = 0;
    for (size_t code = 1; code < entries.size(); ++code) {
      const double steps = x[i] / scale;
      if (std::fabs(steps - entries[code]) <= std::fabs(steps - entries[nearest])) nearest = code;
    }
    codes[i] = static_cast<uint8_t>(nearest);
  }
  WriteNibbles(codes, block + 2);
}

// What is changed where blocks are written and where they are read; where they are written.
constexpr std::string_view kStored =
    "codec encode ggml blocks bytes | codec decode ggml y bytes | codec decode ggml y "
    "special_value | codec round_trip ggml y bound";
constexpr std::string_view kWritten =
    "codec encode ggml blocks bytes | codec round_trip ggml y bound";

constexpr std::string_view kOneBlock = "codec op=decode format=q4_0 x=f32 rows=1 d=32 data=gauss:1";
constexpr std::string_view kBlockWithMinimum =
    "codec op=decode format=q4_1 x=f32 rows=1 d=32 data=gauss:1";

constexpr CodecFault kFaults[] = {
    {{"nibbles_swapped", "nibbles", "the low nibble of a byte is taken for the high one",
      "lcpp-q4-kv-fa-blackwell", "P8", kStored, kOneBlock},
     {.tensors = NibblesSwapped}},
    {{"nibbles_of_neighbours", "nibbles", "a byte has channels 2 j and 2 j + 1, not j and j + 16",
      "lcpp-q4-kv-fa-blackwell", "P8", kStored, kOneBlock},
     {.tensors = NibblesOfNeighbours}},
    {{"fifth_bits_lost", "nibbles", "codes of five bits lose the fifth", "lcpp-q4-kv-fa-blackwell",
      "P8", kStored, "codec op=decode format=q5_0 x=f32 rows=1 d=32 data=gauss:1"},
     {.tensors = FifthBitsZero}},
    {{"last_block_by_half", "blocks", "the last block of a row is written by half",
      "rotating-trim-cross-boundary", "P6", kStored, kOneBlock},
     {.tensors = LastBlockByHalf}},
    {{"scale_of_block_before", "blocks", "a block takes the scale of the block before",
      "lcpp-q4-kv-fa-blackwell", "P8", kStored,
      "codec op=decode format=q4_0 x=f32 rows=1 d=64 data=gauss:1"},
     {.tensors = ScaleOfBlockBefore}},
    {{"minimum_dropped", "minimum", "the minimum of a block is not added",
      "lcpp-q4-kv-fa-blackwell", "P8", kStored, kBlockWithMinimum},
     {.tensors = MinimumZero}},
    {{"minimum_before_scale", "minimum", "scale and minimum of a block are exchanged",
      "cachelist-state-flatten", "P4", kStored, kBlockWithMinimum},
     {.tensors = MinimumBeforeScale}},
    {{"scale_of_magnitude", "scale",
      "the scale is made from the magnitude of the largest element, not from the element",
      "lcpp-q4-kv-fa-blackwell", "P8", kWritten,
      "codec op=encode format=q4_0 x=f32 rows=1 d=32 data=gauss:2"},
     {.block = ScaleOfMagnitude}},
    {{"bytes_of_other_writer", "writer",
      "blocks are those of ggml's vector code where the reference is declared",
      "tq-fused-l1-quantize-basis", "P5", kWritten,
      "codec op=encode format=q8_0 x=f32 rows=1 d=32 data=ties:2"},
     {.block = BytesOfOtherWriter}},
    {{"table_scale_of_largest", "scale",
      "a block of a table keeps the scale of its largest element, not the one that fits its codes",
      "tq-fused-l1-quantize-basis", "P5", kWritten,
      "codec op=encode format=iq4_nl x=f32 rows=1 d=32 data=gauss:1"},
     {.block = TableScaleOfLargest}},
    {{"table_codes_of_last_scale", "writer",
      "codes of a table are found again by the last scale, as files of weights have them",
      "tq-fused-l1-quantize-basis", "P5", kWritten,
      "codec op=encode format=iq4_nl x=f32 rows=1 d=32 data=gauss:2"},
     {.block = TableCodesOfLastScale}},
};

}  // namespace

std::span<const CodecFault> BlockFaults() { return kFaults; }

}  // namespace kvcheck
