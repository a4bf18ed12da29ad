#include "optimized/formats/row_kernels.h"

#include <bit>
#include <cstring>

#include "optimized/formats/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/row_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
HWY_INLINE T LoadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Elements of a storage type as f32, exact; of f64 rounded to odd, for types narrower than f32.
void Widen(DType from, const std::byte* x, int64_t count, float* HWY_RESTRICT out) {
  switch (from) {
    case DType::kFloat64:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(OddF32FromF64(LoadAs<double>(x + 8 * i)));
      }
      return;
    case DType::kFloat32:
      std::memcpy(out, x, static_cast<size_t>(count) * 4);
      return;
    case DType::kFloat16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(F32FromF16(LoadAs<uint16_t>(x + 2 * i)));
      }
      return;
    case DType::kBFloat16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(F32FromBF16(LoadAs<uint16_t>(x + 2 * i)));
      }
      return;
    case DType::kFloat8E4M3FN:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(F32FromE4M3(LoadAs<uint8_t>(x + i)));
      }
      return;
    default:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(F32FromE5M2(LoadAs<uint8_t>(x + i)));
      }
      return;
  }
}

template <typename T, typename Convert>
HWY_INLINE void NarrowLoop(const float* HWY_RESTRICT x, int64_t count, std::byte* out,
                           Convert convert) {
  for (int64_t i = 0; i < count; ++i) {
    const T code = convert(std::bit_cast<uint32_t>(x[i]));
    std::memcpy(out + static_cast<int64_t>(sizeof(T)) * i, &code, sizeof(T));
  }
}

void Narrow(DType dtype, const float* HWY_RESTRICT x, int64_t count, std::byte* out) {
  switch (dtype) {
    case DType::kFloat64:
      for (int64_t i = 0; i < count; ++i) {
        const double value = static_cast<double>(x[i]);  // quiets a NaN
        std::memcpy(out + 8 * i, &value, 8);
      }
      return;
    case DType::kFloat32:
      return NarrowLoop<uint32_t>(x, count, out, [](uint32_t b) { return QuietF32(b); });
    case DType::kFloat16:
      return NarrowLoop<uint16_t>(x, count, out, [](uint32_t b) { return F16FromF32(b); });
    case DType::kBFloat16:
      return NarrowLoop<uint16_t>(x, count, out, [](uint32_t b) { return BF16FromF32(b); });
    case DType::kFloat8E4M3FN:
      return NarrowLoop<uint8_t>(x, count, out, [](uint32_t b) { return E4M3FromF32(b); });
    default:
      return NarrowLoop<uint8_t>(x, count, out, [](uint32_t b) { return E5M2FromF32(b); });
  }
}

void EncodePlain(DType dtype, const EncodeCall& call) {
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* x = call.x + i * call.x_stride;
    std::byte* out = call.out.codes + i * call.out.code_stride;
    if (call.from == DType::kFloat64 && dtype == DType::kFloat32) {
      for (int64_t j = 0; j < call.dim; ++j) {  // once, to nearest
        const float value = static_cast<float>(LoadAs<double>(x + 8 * j));
        std::memcpy(out + 4 * j, &value, 4);
      }
      continue;
    }
    Widen(call.from, x, call.dim, call.values);
    Narrow(dtype, call.values, call.dim, out);
  }
}

void DecodePlain(DType dtype, const DecodeCall& call) {
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    float* out = reinterpret_cast<float*>(call.out) + i * call.dim;
    if (dtype == DType::kFloat64) {
      for (int64_t j = 0; j < call.dim; ++j) {
        out[j] = static_cast<float>(LoadAs<double>(codes + 8 * j));
      }
    } else {
      Widen(dtype, codes, call.dim, out);
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
