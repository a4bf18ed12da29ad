// Affine rows from numbers as KIVI writes V: codes are counted from the least value of the group.
//
// Definition, n = 2^bits - 1, every step rounded to the type T of scales:
//   s = (mx - mn) / n;  bias = mn, of a zero without its sign
//   c = clamp(rint((x - bias) / s), 0, n), 0 where s is 0
// A group with NaN or infinity has scale and bias NaN, and codes 0; so has one whose s is infinite.
// Source: KIVI's kernels, optimum-quanto 0.2.7 (MaxOptimizer, axis=0);
// reference/formats/formats.md, section A.

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "optimized/formats/pack.h"
#include "optimized/formats/row_floats.h"
#include "optimized/formats/row_kernels.h"

namespace kvcheck::optimized {
namespace {

struct Step {
  float scale = 0;
  float bias = 0;
};

Step StepOf(DType type, float n, const float* x, int64_t count) {
  float least = x[0];
  float most = x[0];
  float sum = 0;  // NaN where a value is no number
  for (int64_t i = 0; i < count; ++i) {
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
    sum += x[i] * 0.0f;
  }
  if (sum != sum) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    return {kNan, kNan};
  }
  Step step = {most - least, least == 0 ? 0.0f : least};
  RoundFloats(type, 1, &step.scale);
  step.scale /= n;
  RoundFloats(type, 1, &step.scale);
  return step;
}

// q: room for a group; codes: one a byte.
void CodesOf(DType type, float n, const Step& step, const float* x, int64_t count, float* q,
             uint8_t* codes) {
  if (!(step.scale > 0 && step.scale <= std::numeric_limits<float>::max())) {
    std::memset(codes, 0, static_cast<size_t>(count));
    return;
  }
  for (int64_t i = 0; i < count; ++i) q[i] = x[i] - step.bias;
  RoundFloats(type, count, q);
  for (int64_t i = 0; i < count; ++i) q[i] = q[i] / step.scale;
  RoundFloats(type, count, q);
  for (int64_t i = 0; i < count; ++i) {
    const float clamped = q[i] < n ? q[i] : n;
    codes[i] = static_cast<uint8_t>((clamped + 0x1p23f) - 0x1p23f);
  }
}

template <int kBits>
void EncodeRowsAs(const AffineFormat& format, const EncodeCall& call) {
  static_assert(std::endian::native == std::endian::little, "codes are the low bytes of words");
  constexpr float kMost = static_cast<float>((1 << kBits) - 1);
  const DType type = format.scale_dtype;
  const int64_t group = format.group_size;
  const auto element = static_cast<int64_t>(SizeInBytes(type));
  std::vector<uint8_t> codes(static_cast<size_t>(group));
  std::vector<float> q(static_cast<size_t>(group));
  for (int64_t v = 0; v < call.count; ++v) {
    LoadRow(call, type, call.x + v * call.x_stride);
    std::byte* to = call.out.codes + v * call.out.code_stride;
    for (int64_t g = 0; g < call.dim / group; ++g) {
      const float* x = call.values + g * group;
      const Step step = StepOf(type, kMost, x, group);
      CodesOf(type, kMost, step, x, group, q.data(), codes.data());
      const int64_t at = v * call.out.scale_stride + g * element;
      StoreRow(type, 1, &step.scale, call.out.scales + at);
      StoreRow(type, 1, &step.bias, call.out.biases + at);
      for (size_t i = 0; i < codes.size(); i += 8, to += kBits) {
        uint64_t eight = 0;
        std::memcpy(&eight, codes.data() + i, sizeof(eight));
        const uint64_t joined = JoinCodes<kBits>(eight);
        std::memcpy(to, &joined, kBits);
      }
    }
  }
}

}  // namespace

void EncodeAffineRowsFromMinimum(const AffineFormat& format, const EncodeCall& call) {
  switch (format.bits) {
    case 2:
      return EncodeRowsAs<2>(format, call);
    case 3:
      return EncodeRowsAs<3>(format, call);
    case 4:
      return EncodeRowsAs<4>(format, call);
    case 5:
      return EncodeRowsAs<5>(format, call);
    case 6:
      return EncodeRowsAs<6>(format, call);
    default:
      return EncodeRowsAs<8>(format, call);
  }
}

}  // namespace kvcheck::optimized
