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

}  // namespace

void PackFixedQuery(const AffineFormat& format, const float* q, int64_t dim, int64_t row,
                    float* quad) {
  const int bits = PackedBits(format.bits);
  const int64_t group = format.group_size;
  const int64_t words = group / kFixedCodes;
  const int64_t stride = FixedChannel(bits, 0, 1);
  for (int64_t g = 0; g < dim / group; ++g, q += group) {
    const FixedStep step = FixedStepOf(LargestOf(q, group));
    const double inverse = static_cast<double>(step.lift) * static_cast<double>(step.inverse);
    int32_t n[kMaxGroup] = {};
    uint32_t bytes[kMaxGroup] = {};
    uint32_t sum = 0;  // at most 2^30 in size, if the step is a number
    for (int64_t c = 0; c < group; ++c) n[c] = Round(static_cast<double>(q[c]) * inverse);
    for (int64_t c = 0; c < group; ++c) bytes[c] = FixedBytes(n[c]);
    for (int64_t c = 0; c < group; ++c) sum += static_cast<uint32_t>(n[c]);
    float* to = quad + (g * words * kQuad + row) * kFixedParts;
    for (int64_t word = 0; word < words; ++word, to += kQuad * kFixedParts) {
      uint32_t parts[kFixedParts];
      PartsOf(bytes + FixedChannel(bits, word, 0), stride, parts);
      // One by one: a wider copy would fail store forwarding.
      for (int part = 0; part < kFixedParts; ++part) {
        std::memcpy(to + part, &parts[part], sizeof(float));
      }
    }
    quad[FixedSums(dim) + g * kQuad + row] = static_cast<float>(
        static_cast<double>(static_cast<int32_t>(sum)) * static_cast<double>(step.step));
    quad[FixedSteps(dim, group) + g * kQuad + row] = step.step;
  }
}

}  // namespace kvcheck::optimized
