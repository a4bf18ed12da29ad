// Scales and biases of a block to f32, transposed to group-major; and those of a head group
// transposed to head-major.

#include <cstdint>
#include <cstring>

#include "optimized/attention/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/scale_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/transposed_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

template <class Rows>
HWY_INLINE void WidenNumbers(const std::byte* from, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(Rows::Load(from, i), F32(), out + i);
  if (i >= count) return;
  HWY_ALIGN float lanes[kLanes];
  hn::Store(Rows::LoadTail(from, i, count - i), F32(), lanes);
  std::memcpy(out + i, lanes, static_cast<size_t>(count - i) * sizeof(float));
}

void WidenAll(DType dtype, const std::byte* from, int64_t count, float* out) {
  switch (dtype) {
    case DType::kFloat16:
      return WidenNumbers<Float16Rows>(from, count, out);
    case DType::kBFloat16:
      return WidenNumbers<BFloat16Rows>(from, count, out);
    default:
      return WidenNumbers<Float32Rows>(from, count, out);
  }
}

// kBytes: bytes of a token, if not 0; then a copy is one load and one store.
template <int64_t kBytes>
HWY_INLINE void JoinTokens(const StoredScales& scales, int64_t bytes, std::byte* HWY_RESTRICT to) {
  const std::byte* first = scales.from + scales.columns[0] * scales.stride;
  for (int64_t i = 0; i < scales.count; ++i, to += bytes) {
    const std::byte* token = scales.contiguous ? first + i * scales.stride
                                               : scales.from + scales.columns[i] * scales.stride;
    std::memcpy(to, token, static_cast<size_t>(kBytes == 0 ? bytes : kBytes));
  }
}

// Gathers the scales of all tokens, contiguous.
void JoinScales(const StoredScales& scales, int64_t bytes, std::byte* to) {
  switch (bytes) {
    case 2:
      return JoinTokens<2>(scales, bytes, to);
    case 4:
      return JoinTokens<4>(scales, bytes, to);
    case 8:
      return JoinTokens<8>(scales, bytes, to);
    case 16:
      return JoinTokens<16>(scales, bytes, to);
    default:
      return JoinTokens<0>(scales, bytes, to);
  }
}

// Two groups of contiguous tokens, transposed to group-major, as far as they fill vectors. Returns
// how many tokens.
template <class Rows>
HWY_INLINE int64_t WidenPairs([[maybe_unused]] const std::byte* from,
                              [[maybe_unused]] int64_t count,
                              [[maybe_unused]] float* HWY_RESTRICT out) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const F32 d;
  for (; i + kLanes <= count; i += kLanes) {
    const VF32 low = Rows::Load(from, 2 * i);
    const VF32 high = Rows::Load(from, 2 * i + kLanes);
    hn::StoreU(hn::ConcatEven(d, high, low), d, out + i);
    hn::StoreU(hn::ConcatOdd(d, high, low), d, out + kBlockTokens + i);
  }
#endif
  return i;
}

// Any number of groups, from f32; tokens from token i on.
void ScalesByGroup(const float* HWY_RESTRICT from, int64_t i, int64_t count, int64_t groups,
                   float* HWY_RESTRICT out) {
#if HWY_TARGET != HWY_SCALAR
  const F32 d;
  for (; groups == 4 && i + kLanes <= count; i += kLanes, from += 4 * kLanes) {
    VF32 of[4];
    hn::LoadInterleaved4(d, from, of[0], of[1], of[2], of[3]);
    for (int g = 0; g < 4; ++g) hn::StoreU(of[g], d, out + g * kBlockTokens + i);
  }
#endif
  for (; i < count; ++i, from += groups) {
    for (int64_t g = 0; g < groups; ++g) {
      out[g * kBlockTokens + i] = from[g];  // NOLINT(clang-analyzer-core.uninitialized.Assign)
    }
  }
}

int64_t WidenPairsOf(DType dtype, const std::byte* from, int64_t count, float* out) {
  switch (dtype) {
    case DType::kFloat16:
      return WidenPairs<Float16Rows>(from, count, out);
    case DType::kBFloat16:
      return WidenPairs<BFloat16Rows>(from, count, out);
    default:
      return WidenPairs<Float32Rows>(from, count, out);
  }
}

void WidenScales(const StoredScales& scales, float* by_token, float* out) {
  const int64_t count = scales.count;
  const int64_t groups = scales.groups;
  const int64_t bytes = groups * static_cast<int64_t>(SizeInBytes(scales.dtype));
  const std::byte* from = scales.from + scales.columns[0] * scales.stride;
  if (!scales.contiguous || scales.stride != bytes) {
    // The buffer that the next step does not write.
    auto* joined = reinterpret_cast<std::byte*>(groups <= 2 ? by_token : out);
    JoinScales(scales, bytes, joined);
    from = joined;
  }
  if (groups == 1) return WidenAll(scales.dtype, from, count, out);
  int64_t i = 0;
  if (groups == 2) {
    i = WidenPairsOf(scales.dtype, from, count, out);
    if (i == count) return;
    from += i * bytes;
  }
  float rest[2 * kBlockTokens];
  float* const numbers = groups == 2 ? rest : by_token;
  WidenAll(scales.dtype, from, (count - i) * groups, numbers);
  ScalesByGroup(numbers, i, count, groups, out);
}

#if KVCHECK_WIDE_VECTORS
void TransposeScales(const std::byte* from, int64_t stride, int64_t heads, float* out) {
  auto* const to = reinterpret_cast<uint32_t*>(out);
  for (int64_t i = 0; i < kBlockTokens; i += kLanes) {
    const std::byte* tokens[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) tokens[lane] = from + (i + lane) * stride;
    for (int64_t head = 0; head < heads; head += kScaleHeads) {
      TransposeFour<kBlockTokens>(tokens, head * kScaleWord, to + head * kBlockTokens + i);
    }
  }
}
#endif

ScaleKernels ScalesOfTarget() {
#if KVCHECK_WIDE_VECTORS
  return {.widen = WidenScales, .transpose = TransposeScales};
#else
  return {.widen = WidenScales};
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(ScalesOfTarget);
ScaleKernels KernelsOfScales() { return HWY_DYNAMIC_DISPATCH(ScalesOfTarget)(); }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
