#include "reference/formats/affine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

void CheckSizes(size_t codes, int bits, size_t words) {
  KVCHECK_CHECK(words * 32 == codes * static_cast<size_t>(bits), "codes and words do not match");
}

float RoundToInteger(AffineEncoder encoder, float x) {
  // Under the default rounding direction nearbyint rounds half to even; round, half away from zero.
  return encoder == AffineEncoder::kMlxCpu ? std::nearbyint(x) : std::round(x);
}

}  // namespace

void PackCodes(std::span<const uint8_t> codes, int bits, std::span<uint32_t> words) {
  CheckSizes(codes.size(), bits, words.size());
  uint64_t stream = 0;  // bits that are not in a word yet, the oldest lowest
  int count = 0;
  size_t word = 0;
  for (const uint8_t code : codes) {
    KVCHECK_CHECK(code < (1u << bits), "a code beyond its width");
    stream |= static_cast<uint64_t>(code) << count;
    count += bits;
    if (count < 32) continue;
    words[word++] = static_cast<uint32_t>(stream);
    stream >>= 32;
    count -= 32;
  }
}

void UnpackCodes(std::span<const uint32_t> words, int bits, std::span<uint8_t> codes) {
  CheckSizes(codes.size(), bits, words.size());
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint64_t stream = 0;
  int count = 0;
  size_t word = 0;
  for (uint8_t& code : codes) {
    if (count < bits) {
      stream |= static_cast<uint64_t>(words[word++]) << count;
      count += 32;
    }
    code = static_cast<uint8_t>(stream & mask);
    stream >>= bits;
    count -= bits;
  }
}

AffineGroup EncodeAffineGroup(int bits, AffineEncoder encoder, std::span<const float> x,
                              std::span<uint8_t> codes) {
  KVCHECK_CHECK(encoder != AffineEncoder::kKivi, "an encoder that is not MLX's");
  const float n = static_cast<float>((1 << bits) - 1);
  const bool gpu = encoder == AffineEncoder::kMlxGpu;
  float mx = gpu ? 0.0f : -std::numeric_limits<float>::infinity();
  float mn = std::numeric_limits<float>::infinity();
  for (const float value : x) {  // a comparison with NaN is false: NaN is skipped
    if (value > mx) mx = value;
    if (value < mn) mn = value;
  }
  AffineGroup group;
  const float step = (mx - mn) / n;
  group.scale = step < kAffineSmallestStep ? kAffineSmallestStep : step;  // a NaN step stays
  float edge = mn;
  if (!(std::fabs(mn) > std::fabs(mx))) {
    edge = mx;
    group.scale = -group.scale;
  }
  const float k = RoundToInteger(encoder, edge / group.scale);
  if (k != 0) {  // NaN included
    group.scale = edge / k;
    group.bias = edge;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const float code = RoundToInteger(encoder, (x[i] - group.bias) / group.scale);
    // Negated, so that NaN gives 0. The GPU encoders omit the lower clamp, which cannot matter in a
    // finite group: steps are counted from the edge, and no element lies beyond it.
    codes[i] = !(code > 0) ? uint8_t{0} : static_cast<uint8_t>(std::min(code, n));
  }
  return group;
}

ExactValue AffineValue(uint8_t code, double scale, double bias) {
  // 8 and 24 bits: exact.
  const double product = static_cast<double>(code) * scale;
  const double sum = product + bias;
  if (!std::isfinite(sum)) return {sum, 0};
  // Knuth's TwoSum: the error of a floating-point sum is a floating-point number.
  const double bias_part = sum - product;
  const double product_part = sum - bias_part;
  return {sum, (product - product_part) + (bias - bias_part)};
}

double RoundExact(DType dtype, ExactValue value) {
  double odd = value.hi;
  if (std::isfinite(value.hi) && value.lo != 0 && (std::bit_cast<uint64_t>(value.hi) & 1u) == 0) {
    // Rounding to odd keeps the information that something remains, so that the second rounding
    // decides as if it were the only one (Boldo, Melquiond, "Emulation of FMA and correctly rounded
    // sums", 2008): 53 bits are more than the 24 + 2 that it needs.
    const double infinity = std::numeric_limits<double>::infinity();
    odd = std::nextafter(value.hi, value.lo > 0 ? infinity : -infinity);
  }
  return RoundTo(dtype, odd);
}

void DecodeAffineGroup(DecodeRounding rounding, DType dtype, std::span<const uint8_t> codes,
                       double scale, double bias, std::span<double> out) {
  if (rounding != DecodeRounding::kTwoRoundings) {
    for (size_t i = 0; i < codes.size(); ++i) {
      out[i] = RoundExact(dtype, AffineValue(codes[i], scale, bias));
    }
    return;
  }
  for (size_t i = 0; i < codes.size(); ++i) out[i] = static_cast<double>(codes[i]) * scale;
  RoundAll(out, dtype);
  // A sum of two f32 values that double rounds is not moved by that over a rounding border of f32:
  // 53 >= 2 * 24 + 2 (Figueroa, "When is double rounding innocuous?", 1995).
  for (double& value : out) value += bias;
  RoundAll(out, dtype);
}

}  // namespace kvcheck
