#include "optimized/formats/row_kernels.h"

#include <bit>
#include <cstring>

#include "optimized/formats/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/row_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/formats/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kvcheck::HWY_NAMESPACE;  // NOLINT

template <DType kFrom, DType kTo, class D>
HWY_INLINE void ConvertLanes(D d, const std::byte* x, std::byte* out) {
  auto v = LoadLanes<kFrom>(d, x);
  if constexpr (kTo == DType::kFloat32) v = QuietLanes(d, v);
  StoreLanes<kTo>(v, d, out);
}

// Numbers of a type of at most 32 bits to another.
template <DType kFrom, DType kTo>
void ConvertRow(const std::byte* x, int64_t count, std::byte* out) {
  const HWY_CAPPED(float, 8) d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kFromBytes = kElementBytes<kFrom>;
  constexpr int kToBytes = kElementBytes<kTo>;
  const size_t rest = static_cast<size_t>(count) % static_cast<size_t>(lanes);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    ConvertLanes<kFrom, kTo>(d, x + kFromBytes * i, out + kToBytes * i);
  }
  if (rest == 0) return;
  std::byte last[kFromBytes * 8] = {};
  std::byte converted[kToBytes * 8];
  std::memcpy(last, x + kFromBytes * i, rest * kFromBytes);
  ConvertLanes<kFrom, kTo>(d, last, converted);
  std::memcpy(out + kToBytes * i, converted, rest * kToBytes);
}

using ConvertFunction = void (*)(const std::byte* x, int64_t count, std::byte* out);

// f64 to f32: rounded once, to nearest; kOdd: to odd, for types narrower than f32.
template <bool kOdd>
void RoundDoubles(const std::byte* x, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    double value = 0;
    std::memcpy(&value, x + 8 * i, 8);
    const float rounded =
        kOdd ? std::bit_cast<float>(OddF32FromF64(value)) : static_cast<float>(value);
    std::memcpy(out + 4 * i, &rounded, 4);
  }
}

// The conversion to double quiets NaN.
void FloatsToDoubles(const std::byte* x, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, x + 4 * i, 4);
    const auto wide = static_cast<double>(value);
    std::memcpy(out + 8 * i, &wide, 8);
  }
}

template <DType kFrom>
ConvertFunction ConvertFrom(DType to) {
  switch (to) {
    case DType::kFloat32:
      return ConvertRow<kFrom, DType::kFloat32>;
    case DType::kFloat16:
      return ConvertRow<kFrom, DType::kFloat16>;
    case DType::kBFloat16:
      return ConvertRow<kFrom, DType::kBFloat16>;
    case DType::kFloat8E4M3FN:
      return ConvertRow<kFrom, DType::kFloat8E4M3FN>;
    default:
      return ConvertRow<kFrom, DType::kFloat8E5M2>;
  }
}

// Neither type is f64.
ConvertFunction Converter(DType from, DType to) {
  switch (from) {
    case DType::kFloat32:
      return ConvertFrom<DType::kFloat32>(to);
    case DType::kFloat16:
      return ConvertFrom<DType::kFloat16>(to);
    case DType::kBFloat16:
      return ConvertFrom<DType::kBFloat16>(to);
    case DType::kFloat8E4M3FN:
      return ConvertFrom<DType::kFloat8E4M3FN>(to);
    default:
      return ConvertFrom<DType::kFloat8E5M2>(to);
  }
}

void EncodePlain(DType dtype, const EncodeCall& call) {
  // f64 is converted from and to f32, in two steps where the other type is narrower.
  ConvertFunction first = nullptr;
  ConvertFunction second = nullptr;
  if (call.from == DType::kFloat64) {
    first = dtype == DType::kFloat32 ? RoundDoubles<false> : RoundDoubles<true>;
    if (dtype != DType::kFloat32) second = Converter(DType::kFloat32, dtype);
  } else if (dtype == DType::kFloat64) {
    first = Converter(call.from, DType::kFloat32);
    second = FloatsToDoubles;
  } else {
    first = Converter(call.from, dtype);
  }
  auto* between = reinterpret_cast<std::byte*>(call.values);
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* x = call.x + i * call.x_stride;
    std::byte* out = call.out.codes + i * call.out.code_stride;
    first(x, call.dim, second == nullptr ? out : between);
    if (second != nullptr) second(between, call.dim, out);
  }
}

void DecodePlain(DType dtype, const DecodeCall& call) {
  const ConvertFunction convert =
      dtype == DType::kFloat64 ? RoundDoubles<false> : Converter(dtype, DType::kFloat32);
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    std::byte* out = call.out + 4 * i * call.dim;
    if (dtype == DType::kFloat32) {
      std::memcpy(out, codes, static_cast<size_t>(4 * call.dim));
    } else {
      convert(codes, call.dim, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(EncodePlain);
HWY_EXPORT(DecodePlain);

void EncodePlainRows(DType dtype, const EncodeCall& call) {
  HWY_DYNAMIC_DISPATCH(EncodePlain)(dtype, call);
}
void DecodePlainRows(DType dtype, const DecodeCall& call) {
  HWY_DYNAMIC_DISPATCH(DecodePlain)(dtype, call);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
