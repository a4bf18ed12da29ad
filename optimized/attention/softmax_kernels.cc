// The step of the online softmax over one block, and the conversions that go before it: scales of a
// block to f32, narrow codes to bytes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "optimized/attention/kernel_parts.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/softmax_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

// tanh of the platform in double, rounded once.
HWY_INLINE void Softcap(float cap, float* scores, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = cap * static_cast<float>(std::tanh(static_cast<double>(scores[i] / cap)));
  }
}

template <int kWidth, bool kFused>
void Softmax(const SoftmaxStep& step) {
  const F32 d;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int64_t kChunk = kSumLanes16 * kWidth;  // scores of 16 tokens
  const int64_t used = step.count * kWidth;
  const int64_t chunks = (used + kChunk - 1) / kChunk;
  float* HWY_RESTRICT scores = step.scores;
  // Places behind the last token get a weight of zero.
  std::fill(scores + used, scores + chunks * kChunk, 0.0f);
  const VF32 scale = hn::Set(d, step.scale);
  for (int64_t i = 0; i < chunks * kChunk; i += kLanes) {
    hn::Store(hn::Mul(hn::Load(d, scores + i), scale), d, scores + i);
  }
  if (step.softcap > 0) Softcap(step.softcap, scores, used);
  if (step.bias != nullptr) {
    for (int64_t i = 0; i < used; ++i) scores[i] += step.bias[i];
  }
  std::fill(scores + used, scores + chunks * kChunk, -kInfinity);

  // Largest score of each query. A maximum has no rounding: its order does not matter.
  HWY_ALIGN float most[kSumLanes16];
  for (int64_t j = 0; j < kSumLanes16; j += kLanes) {
    VF32 top = hn::Load(d, scores + j);
    for (int64_t i = kSumLanes16 + j; i < chunks * kChunk; i += kSumLanes16) {
      top = hn::Max(top, hn::Load(d, scores + i));
    }
    hn::Store(top, d, most + j);
  }
  HWY_ALIGN float shift[kSumLanes16];  // of each query, again and again
  float moved[kSumLanes16];
  for (int h = 0; h < kWidth; ++h) {
    float top = step.shift[h];
    for (int64_t i = h; i < kSumLanes16; i += kWidth) top = std::max(top, most[i]);
    // Before the first finite score nothing has a weight.
    moved[h] = step.shift[h] - (top == -kInfinity ? 0.0f : top);
    step.shift[h] = top;
    for (int64_t i = h; i < kSumLanes16; i += kWidth) shift[i] = top == -kInfinity ? 0.0f : top;
  }
  for (int h = kWidth; h < kSumLanes16; ++h) moved[h] = 0;
  HWY_ALIGN float rescale[kSumLanes16];
  for (int64_t j = 0; j < std::max<int64_t>(kWidth, kLanes); j += kLanes) {
    hn::Store(ExpOfNegative<kFused>(d, hn::LoadU(d, moved + j)), d, rescale + j);
  }

  HWY_ALIGN float lanes[kChunk];  // token i in lane i mod 16
  for (int64_t j = 0; j < kChunk; j += kLanes) {
    const VF32 top = hn::Load(d, shift + j % kSumLanes16);
    VF32 sum = hn::Zero(d);
    for (int64_t i = j; i < chunks * kChunk; i += kChunk) {
      const VF32 weight = ExpOfNegative<kFused>(d, hn::Sub(hn::Load(d, scores + i), top));
      hn::Store(weight, d, scores + i);
      sum = hn::Add(sum, weight);
    }
    hn::Store(sum, d, lanes + j);
  }
  for (int64_t half = kSumLanes16 / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half * kWidth; ++i) lanes[i] += lanes[i + half * kWidth];
  }
  for (int h = 0; h < kWidth; ++h) {
    step.rescale[h] = rescale[h];
    step.total[h] = step.total[h] * rescale[h] + lanes[h];
  }
}

void FillSoftmax(bool fused, AttentionKernels* kernels) {
  FillWidths(kernels->softmax, fused, Softmax<1, false>, Softmax<kQuad, false>,
             Softmax<1, HWY_NATIVE_FMA>, Softmax<kQuad, HWY_NATIVE_FMA>);
}

template <bool kFused>
HWY_INLINE void ExpLoop(const float* x, int64_t count, float* y) {
  const F32 d;
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto here = static_cast<size_t>(std::min(kLanes, count - i)) * sizeof(float);
    std::memcpy(lanes, x + i, here);
    hn::Store(ExpOfNegative<kFused>(d, hn::Load(d, lanes)), d, lanes);
    std::memcpy(y + i, lanes, here);
  }
}

void Exps(bool fused, const float* x, int64_t count, float* y) {
  fused ? ExpLoop<HWY_NATIVE_FMA>(x, count, y) : ExpLoop<false>(x, count, y);
}

template <class Rows>
HWY_INLINE void WidenNumbers(const std::byte* from, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(Rows::Load(from, i), F32(), out + i);
  if (i >= count) return;
  HWY_ALIGN float lanes[kLanes];
  hn::Store(Rows::LoadTail(from, i, count - i), F32(), lanes);
  std::memcpy(out + i, lanes, static_cast<size_t>(count - i) * sizeof(float));
}

// Few numbers stand together: they are gathered, then widened as one.
void ScalesToFloat(DType dtype, const std::byte* const* from, int64_t count, int64_t per_piece,
                   float* out) {
  if (dtype == DType::kFloat32) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(out + i * per_piece, from[i], static_cast<size_t>(per_piece) * 4);
    }
    return;
  }
  if (count == 1) {
    return dtype == DType::kFloat16 ? WidenNumbers<Float16Rows>(from[0], per_piece, out)
                                    : WidenNumbers<BFloat16Rows>(from[0], per_piece, out);
  }
  constexpr int64_t kRoom = 1024;
  std::byte numbers[2 * kRoom];
  const int64_t pieces = std::max<int64_t>(1, kRoom / per_piece);
  for (int64_t first = 0; first < count; first += pieces) {
    const int64_t here = std::min(pieces, count - first);
    for (int64_t done = 0; done < per_piece; done += kRoom) {
      const int64_t width = std::min(kRoom, per_piece - done);
      for (int64_t i = 0; i < here; ++i) {
        const std::byte* piece = from[first + i] + 2 * done;
        if (width == 2) {
          std::memcpy(numbers + 4 * i, piece, 4);
        } else {
          std::memcpy(numbers + 2 * i * width, piece, static_cast<size_t>(2 * width));
        }
      }
      float* to = out + first * per_piece + done;
      if (dtype == DType::kFloat16) {
        WidenNumbers<Float16Rows>(numbers, here * width, to);
      } else {
        WidenNumbers<BFloat16Rows>(numbers, here * width, to);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(FillSoftmax);
HWY_EXPORT(Exps);
HWY_EXPORT(ScalesToFloat);

void FillSoftmaxKernels(bool fused, AttentionKernels* kernels) {
  HWY_DYNAMIC_DISPATCH(FillSoftmax)(fused, kernels);
}
void ExpOf(bool fused, const float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(Exps)(fused, x, count, y);
}
void WidenScales(DType dtype, const std::byte* const* from, int64_t count, int64_t per_piece,
                 float* out) {
  HWY_DYNAMIC_DISPATCH(ScalesToFloat)(dtype, from, count, per_piece, out);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
