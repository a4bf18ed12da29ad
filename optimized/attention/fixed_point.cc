#include "optimized/attention/fixed_point.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "optimized/attention/packed_codes.h"

namespace kvcheck::optimized {
namespace {

// Compared as integers, which order absolute values, with infinity and NaN above all.
float LargestOf(const float* q, int64_t count) {
  uint32_t largest = 0;
  for (int64_t c = 0; c < count; ++c) {
    uint32_t bits = 0;
    std::memcpy(&bits, q + c, sizeof(bits));
    largest = std::max(largest, bits & 0x7fffffffu);
  }
  return std::bit_cast<float>(largest);
}

// To nearest: above 1.5 * 2^52 doubles are integers, in their lower half.
int32_t Round(double x) {
  return static_cast<int32_t>(static_cast<uint32_t>(std::bit_cast<uint64_t>(x + 0x1.8p52)));
}

int32_t ByteOf(uint32_t bytes, int part) {
  return static_cast<int8_t>(static_cast<uint8_t>(bytes >> (8 * part)));
}

// Transposes four words of three bytes: parts[i] has byte i of each.
void PartsOf(const uint32_t* words, int64_t stride, uint32_t* parts) {
  constexpr uint32_t kEven = 0x00ff00ff;
  const auto even = [](uint32_t a, uint32_t b) { return (a & kEven) | (b & kEven) << 8; };
  const uint32_t a = words[0];
  const uint32_t b = words[stride];
  const uint32_t c = words[2 * stride];
  const uint32_t d = words[3 * stride];
  const uint32_t ab = even(a, b);
  const uint32_t cd = even(c, d);
  parts[0] = (ab & 0xffff) | cd << 16;
  parts[1] = (even(a >> 8, b >> 8) & 0xffff) | even(c >> 8, d >> 8) << 16;
  parts[2] = ab >> 16 | (cd & 0xffff0000);
}

using Operand = std::optional<FixedOperand>;

Operand OperandOf(const AffineFormat& format) {
  if (!CanFactor(format)) return std::nullopt;
  const int64_t group = format.group_size;
  if (format.bits == 4) {
    return FixedOperand{RowKind::kFactored4, FixedLayout::kNibbles, group, 0, group / 2};
  }
  return FixedOperand{RowKind::kFactored8, FixedLayout::kBytes, group, 0, group};
}

// ggml's blocks of 32 channels: an f16 scale, an f16 minimum or none, a word of fifth bits or none,
// and the codes.
FixedOperand BlockOperand(RowKind kind, FixedLayout layout, int32_t offset, bool has_minimum) {
  constexpr int64_t kChannels = 32;
  const int64_t before = (has_minimum ? 4 : 2) + (layout == FixedLayout::kFiveHalves ? 4 : 0);
  const int64_t codes = layout == FixedLayout::kSignedBytes ? kChannels : kChannels / 2;
  return {kind, layout, kChannels, before, before + codes, offset, true, has_minimum};
}
Operand OperandOf(const Q8_0Format&) {
  return BlockOperand(RowKind::kFixedSigned8, FixedLayout::kSignedBytes, 128, false);
}
Operand OperandOf(const Q4_0Format&) {
  return BlockOperand(RowKind::kFixedHalves4, FixedLayout::kHalves, 8, false);
}
Operand OperandOf(const Q4_1Format&) {
  return BlockOperand(RowKind::kFixedHalves4, FixedLayout::kHalves, 0, true);
}
Operand OperandOf(const Q5_0Format&) {
  return BlockOperand(RowKind::kFixedHalves5, FixedLayout::kFiveHalves, 16, false);
}
Operand OperandOf(const Q5_1Format&) {
  return BlockOperand(RowKind::kFixedHalves5, FixedLayout::kFiveHalves, 0, true);
}
Operand OperandOf(const Iq4NlFormat&) {
  return BlockOperand(RowKind::kFixedTable4, FixedLayout::kTableHalves, 127, false);
}
template <typename Format>
Operand OperandOf(const Format&) {
  return std::nullopt;
}

}  // namespace

std::optional<FixedOperand> FixedOperandOf(const KvFormat& format) {
  return std::visit([](const auto& family) { return OperandOf(family); }, format);
}

void PackFixedQuery(const FixedOperand& operand, const float* q, int64_t dim, int64_t row,
                    float* quad) {
  const int64_t group = operand.group;
  const int64_t words = group / kFixedCodes;
  const int64_t stride = FixedChannel(operand.layout, 0, 1);
  for (int64_t g = 0; g < dim / group; ++g, q += group) {
    const FixedStep step = FixedStepOf(LargestOf(q, group));
    const double inverse = static_cast<double>(step.lift) * static_cast<double>(step.inverse);
    int32_t n[kMaxGroup] = {};
    uint32_t bytes[kMaxGroup] = {};
    uint32_t sum = 0;  // at most 2^30 in size, if the step is a number
    for (int64_t c = 0; c < group; ++c) n[c] = Round(static_cast<double>(q[c]) * inverse);
    for (int64_t c = 0; c < group; ++c) bytes[c] = FixedBytes(n[c]);
    for (int64_t c = 0; c < group; ++c) sum += static_cast<uint32_t>(n[c]);
    float* to = quad + (g * FixedWords(group) * kQuad + row) * kFixedParts;
    // One by one: a wider copy would fail store forwarding.
    const auto store = [&](const auto* parts) {
      for (int part = 0; part < kFixedParts; ++part) {
        std::memcpy(to + part, &parts[part], sizeof(float));
      }
      to += kQuad * kFixedParts;
    };
    int32_t before[kFixedParts] = {};
    for (int part = 0; operand.offset != 0 && part < kFixedParts; ++part) {
      for (int64_t c = 0; c < group; ++c) before[part] -= ByteOf(bytes[c], part);
      before[part] *= operand.offset;
    }
    store(before);
    for (int64_t word = 0; word < words; ++word) {
      uint32_t parts[kFixedParts];
      PartsOf(bytes + FixedChannel(operand.layout, word, 0), stride, parts);
      store(parts);
    }
    quad[FixedSums(dim, group) + g * kQuad + row] = static_cast<float>(
        static_cast<double>(static_cast<int32_t>(sum)) * static_cast<double>(step.step));
    quad[FixedSteps(dim, group) + g * kQuad + row] = step.step;
  }
}

}  // namespace kvcheck::optimized
