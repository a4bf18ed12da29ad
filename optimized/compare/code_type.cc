#include "optimized/compare/code_type.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// bytes, float, signed integer, mantissa, bias, sign, magnitude, largest, infinity, NaN
constexpr CodeType kF64 = {8,
                           true,
                           false,
                           52,
                           1023,
                           uint64_t{1} << 63,
                           ~uint64_t{0} >> 1,
                           0x7fefffffffffffff,
                           0x7ff0000000000000,
                           true};
constexpr CodeType kF32 = {4,          true,       false,      23,         127,
                           0x80000000, 0x7fffffff, 0x7f7fffff, 0x7f800000, true};
constexpr CodeType kF16 = {2, true, false, 10, 15, 0x8000, 0x7fff, 0x7bff, 0x7c00, true};
constexpr CodeType kBF16 = {2, true, false, 7, 127, 0x8000, 0x7fff, 0x7f7f, 0x7f80, true};
constexpr CodeType kE4M3 = {1, true, false, 3, 7, 0x80, 0x7f, 0x7e, 0, true};
constexpr CodeType kE5M2 = {1, true, false, 2, 15, 0x80, 0x7f, 0x7b, 0x7c, true};
constexpr CodeType kE8M0 = {1, true, false, 0, 127, 0, 0xff, 0xfe, 0, true};
// A byte above 0x0f is no code: the unused bits count as magnitude.
constexpr CodeType kE2M1 = {1, true, false, 1, 1, 0x08, 0xf7, 0x07, 0, false};
constexpr CodeType kI8 = {1, false, true, 0, 0, 0, 0xff, 0xff, 0, false};
constexpr CodeType kI16 = {2, false, true, 0, 0, 0, 0xffff, 0xffff, 0, false};
constexpr CodeType kI32 = {4, false, true, 0, 0, 0, 0xffffffff, 0xffffffff, 0, false};
constexpr CodeType kI64 = {8, false, true, 0, 0, 0, ~uint64_t{0}, ~uint64_t{0}, 0, false};
constexpr CodeType kU8 = {1, false, false, 0, 0, 0, 0xff, 0xff, 0, false};
constexpr CodeType kU16 = {2, false, false, 0, 0, 0, 0xffff, 0xffff, 0, false};
constexpr CodeType kU32 = {4, false, false, 0, 0, 0, 0xffffffff, 0xffffffff, 0, false};
constexpr CodeType kU64 = {8, false, false, 0, 0, 0, ~uint64_t{0}, ~uint64_t{0}, 0, false};
constexpr CodeType kBool = {1, false, false, 0, 0, 0, 0xff, 0x01, 0, false};

double FloatValue(const CodeType& type, uint64_t code) {
  const uint64_t magnitude = code & type.magnitude;
  if (magnitude > type.largest) {
    const bool is_infinity = type.infinity != 0 && magnitude == type.infinity;
    const double size = is_infinity ? std::numeric_limits<double>::infinity()
                                    : std::numeric_limits<double>::quiet_NaN();
    return (code & type.sign) != 0 ? -size : size;
  }
  const uint64_t field = magnitude >> type.mantissa_bits;
  const uint64_t mantissa = magnitude & ((uint64_t{1} << type.mantissa_bits) - 1);
  double size;
  if (field == 0 && type.sign != 0) {
    // Subnormal: both factors and the product are doubles.
    size =
        static_cast<double>(mantissa) *
        std::bit_cast<double>(static_cast<uint64_t>(1024 - type.bias - type.mantissa_bits) << 52);
  } else {
    size = std::bit_cast<double>((field + static_cast<uint64_t>(1023 - type.bias)) << 52 |
                                 mantissa << (52 - type.mantissa_bits));
  }
  return (code & type.sign) != 0 ? -size : size;
}

}  // namespace

const CodeType& CodeTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return kF64;
    case DType::kFloat32:
      return kF32;
    case DType::kFloat16:
      return kF16;
    case DType::kBFloat16:
      return kBF16;
    case DType::kFloat8E4M3FN:
      return kE4M3;
    case DType::kFloat8E5M2:
      return kE5M2;
    case DType::kFloat8E8M0FNU:
      return kE8M0;
    case DType::kFloat4E2M1FN:
      return kE2M1;
    case DType::kInt8:
      return kI8;
    case DType::kInt16:
      return kI16;
    case DType::kInt32:
      return kI32;
    case DType::kInt64:
      return kI64;
    case DType::kUInt8:
      return kU8;
    case DType::kUInt16:
      return kU16;
    case DType::kUInt32:
      return kU32;
    case DType::kUInt64:
      return kU64;
    case DType::kBool:
      return kBool;
  }
  KVCHECK_CHECK(false, "no such type");
}

double ValueOf(DType dtype, uint64_t code) {
  switch (dtype) {
    case DType::kFloat64:
      return std::bit_cast<double>(code);
    case DType::kFloat32:
      return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(code)));
    case DType::kInt8:
      return static_cast<int8_t>(code);
    case DType::kInt16:
      return static_cast<int16_t>(code);
    case DType::kInt32:
      return static_cast<int32_t>(code);
    case DType::kInt64:
      return static_cast<double>(static_cast<int64_t>(code));
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return static_cast<double>(code);
    case DType::kBool:
      return code > 1 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(code);
    default:
      return FloatValue(CodeTypeOf(dtype), code);
  }
}

uint64_t LoadCode(int bytes, const std::byte* from) {
  const auto load = [from](auto code) {
    std::memcpy(&code, from, sizeof(code));
    return static_cast<uint64_t>(code);
  };
  switch (bytes) {
    case 1:
      return load(uint8_t{});
    case 2:
      return load(uint16_t{});
    case 4:
      return load(uint32_t{});
    default:
      return load(uint64_t{});
  }
}

}  // namespace kvcheck
