#include "reference/numerics/convert.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr uint64_t kSign64 = uint64_t{1} << 63;
constexpr uint64_t kInfinity64 = uint64_t{0x7ff} << 52;
constexpr uint64_t kMantissa64 = (uint64_t{1} << 52) - 1;
constexpr uint64_t kQuiet64 = uint64_t{1} << 51;

uint64_t SignBit(const FloatType& type) {
  return type.is_signed ? uint64_t{1} << (type.exponent_bits + type.mantissa_bits) : 0;
}

// Exponent field all ones, mantissa zero.
uint64_t TopExponent(const FloatType& type) {
  return ((uint64_t{1} << type.exponent_bits) - 1) << type.mantissa_bits;
}

// Codes of magnitudes are ordered like the values, so overflow is a comparison of codes.
uint64_t LargestCode(DType dtype, const FloatType& type) {
  if (type.has_infinity) return TopExponent(type) - 1;
  const uint64_t all_ones = TopExponent(type) | ((uint64_t{1} << type.mantissa_bits) - 1);
  return dtype == DType::kFloat4E2M1FN ? all_ones : all_ones - 1;
}

Overflow Resolve(const FloatType& type, Overflow overflow) {
  if (overflow != Overflow::kDefault) return overflow;
  if (type.has_infinity) return Overflow::kInfinity;
  return type.has_nan ? Overflow::kNaN : Overflow::kSaturate;
}

// nan_bits: the double's own bits, for the payload.
uint64_t NaNCode(DType dtype, const FloatType& type, uint64_t nan_bits) {
  switch (dtype) {
    case DType::kFloat8E8M0FNU:
      return 0xff;
    case DType::kFloat8E4M3FN:
      return 0x7f;
    case DType::kFloat8E5M2:
      return 0x7e;
    case DType::kFloat4E2M1FN:
      return 0;
    default:
      break;
  }
  const uint64_t payload = (nan_bits & kMantissa64) | kQuiet64;
  return TopExponent(type) | (payload >> (52 - type.mantissa_bits));
}

// floor or nearest of magnitude / 2^shift, for shift in [0, 63].
uint64_t ShiftRound(uint64_t magnitude, int shift, Rounding rounding) {
  if (shift == 0) return magnitude;
  const uint64_t kept = magnitude >> shift;
  const uint64_t rest = magnitude & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  switch (rounding) {
    case Rounding::kTowardZero:
      return kept;
    case Rounding::kNearestAway:
      return kept + (rest >= half ? 1 : 0);
    case Rounding::kNearestEven:
      break;
  }
  return kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
}

// The code of a finite positive magnitude with the hidden bit as carried in the exponent field,
// unbounded above: codes beyond LargestCode mean overflow.
uint64_t MagnitudeCode(const FloatType& type, uint64_t bits, Rounding rounding) {
  uint64_t mantissa = bits & kMantissa64;
  int exponent = static_cast<int>(bits >> 52);  // of the last place, biased by 1075
  if (exponent == 0) {
    exponent = 1;
  } else {
    mantissa |= uint64_t{1} << 52;
  }
  exponent -= 1075;
  const int top = exponent + 63 - std::countl_zero(mantissa);  // floor(log2 magnitude)
  // e8m0 has no subnormals: its code 0 is 2^-127, a binade like the others.
  const int min_exponent = type.has_subnormals ? 1 - type.bias : -type.bias;
  if (!type.has_subnormals && top < min_exponent) return 0;
  const int binade = top > min_exponent ? top : min_exponent;
  const int shift = binade - type.mantissa_bits - exponent;
  // Beyond 54 bits the magnitude is below half a step: only its being nonzero matters.
  const uint64_t kept = shift <= 0    ? mantissa << -shift
                        : shift <= 54 ? ShiftRound(mantissa, shift, rounding)
                                      : 0;
  // With subnormals the hidden bit itself raises the field from 0 to 1.
  const uint64_t hidden = type.has_subnormals ? 0 : uint64_t{1} << type.mantissa_bits;
  return (static_cast<uint64_t>(binade - min_exponent) << type.mantissa_bits) + kept - hidden;
}

struct IntegerRange {
  double low;
  double past;  // the first integer beyond, a double also for 64 bits
};

IntegerRange RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return {-128.0, 128.0};
    case DType::kInt16:
      return {-0x1p15, 0x1p15};
    case DType::kInt32:
      return {-0x1p31, 0x1p31};
    case DType::kInt64:
      return {-0x1p63, 0x1p63};
    case DType::kUInt8:
      return {0.0, 256.0};
    case DType::kUInt16:
      return {0.0, 65536.0};
    case DType::kUInt32:
      return {0.0, 0x1p32};
    case DType::kUInt64:
      return {0.0, 0x1p64};
    case DType::kBool:
      return {0.0, 2.0};
    default:
      break;
  }
  KVCHECK_CHECK(false, "not an integer type");
}

uint64_t EncodeInteger(DType dtype, double x) {
  const IntegerRange range = RangeOf(dtype);
  if (!(x >= range.low && x < range.past && x == std::trunc(x))) {
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("{} is not a value of {}; round and clamp it first", x, Name(dtype)));
  }
  const uint64_t bits =
      x < 0 ? static_cast<uint64_t>(static_cast<int64_t>(x)) : static_cast<uint64_t>(x);
  const int width = CodeBits(dtype);
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

void CheckDefined(DType dtype, const ConvertRule& rule) {
  if (IsDefined(dtype, rule)) return;
  throw Error(ErrorCode::kIllegalCase,
              fmt::format("rounding {} with overflow {} is not defined for {}; choose a rule whose "
                          "special values the type has",
                          Name(rule.rounding), Name(rule.overflow), Name(dtype)));
}

// Precondition: IsDefined(dtype, rule), a float type.
uint64_t EncodeFloat(DType dtype, const FloatType& type, double x, const ConvertRule& rule) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t magnitude = bits & ~kSign64;
  const bool negative = (bits & kSign64) != 0;
  const uint64_t sign = negative ? SignBit(type) : 0;
  const uint64_t largest = LargestCode(dtype, type);
  const Overflow overflow = Resolve(type, rule.overflow);
  const bool saturates = overflow == Overflow::kSaturate || overflow == Overflow::kSaturateAll;

  if (magnitude > kInfinity64) {
    if (overflow == Overflow::kSaturateAll) return sign | largest;
    const uint64_t nan = NaNCode(dtype, type, magnitude);
    return type.has_nan ? sign | nan : nan;
  }
  if (!type.is_signed && (negative || magnitude == 0)) {
    return saturates ? 0 : NaNCode(dtype, type, kQuiet64);
  }
  if (magnitude == 0) return sign;
  uint64_t code = largest + 1;
  if (magnitude != kInfinity64) {
    code = MagnitudeCode(type, magnitude, rule.rounding);
    // Truncation never carries a finite value past the largest one (IEEE 754-2019, 7.4).
    if (code > largest && rule.rounding == Rounding::kTowardZero) code = largest;
  }
  if (code > largest) {
    if (saturates) return sign | largest;
    return sign |
           (overflow == Overflow::kInfinity ? TopExponent(type) : NaNCode(dtype, type, kQuiet64));
  }
  const bool subnormal = type.has_subnormals && code < (uint64_t{1} << type.mantissa_bits);
  return sign | (rule.flush_subnormals && subnormal ? 0 : code);
}

double DecodeFloat(DType dtype, const FloatType& type, uint64_t bits) {
  const double sign = (bits & SignBit(type)) != 0 ? -1.0 : 1.0;
  const uint64_t mantissa_mask = (uint64_t{1} << type.mantissa_bits) - 1;
  const uint64_t code = bits & (TopExponent(type) | mantissa_mask);
  const uint64_t mantissa = code & mantissa_mask;
  const uint64_t field = code >> type.mantissa_bits;
  if (code > LargestCode(dtype, type)) {
    const uint64_t sign64 = sign < 0 ? kSign64 : 0;
    if (type.has_infinity && mantissa == 0) return std::bit_cast<double>(kInfinity64 | sign64);
    // e4m3fn and e8m0fnu have no quiet bit, and no payload to keep.
    const uint64_t payload = type.has_infinity ? mantissa << (52 - type.mantissa_bits) : 0;
    return std::bit_cast<double>(kInfinity64 | kQuiet64 | payload | sign64);
  }
  if (type.has_subnormals && field == 0) {
    return sign * static_cast<double>(mantissa) * type.smallest_subnormal;
  }
  const uint64_t biased = field + static_cast<uint64_t>(1023 - type.bias);
  return sign * std::bit_cast<double>(biased << 52 | mantissa << (52 - type.mantissa_bits));
}

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T, typename Decoder>
void DecodeLoop(const std::byte* from, std::span<double> out, Decoder decode) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = decode(Load<T>(from + i * sizeof(T)));
}

[[noreturn]] void ThrowNoCode(DType dtype, int64_t element, int byte) {
  throw Error(ErrorCode::kIllegalCase,
              fmt::format("element {} is the byte {:#04x}, which is no {} code; the tensor is "
                          "damaged or of another type",
                          element, byte, Name(dtype)));
}

// The value of a quiet or finite float as a double, with the payload of a NaN.
double Widen(float x) { return static_cast<double>(x); }

template <typename T, typename Encoder>
void EncodeLoop(std::span<const double> values, std::byte* out, Encoder encode) {
  for (size_t i = 0; i < values.size(); ++i) {
    const T code = encode(values[i]);
    std::memcpy(out + i * sizeof(T), &code, sizeof(T));
  }
}

template <typename T>
void EncodeSlow(std::span<const double> values, DType dtype, std::byte* out,
                const ConvertRule& rule) {
  if (!IsFloat(dtype)) {
    return EncodeLoop<T>(values, out,
                         [&](double x) { return static_cast<T>(EncodeInteger(dtype, x)); });
  }
  const FloatType& type = FloatTypeOf(dtype);
  EncodeLoop<T>(values, out,
                [&](double x) { return static_cast<T>(EncodeFloat(dtype, type, x, rule)); });
}

// The values of all codes of a one-byte type.
std::array<double, 256> ByteTable(DType dtype) {
  std::array<double, 256> table;
  for (size_t code = 0; code < table.size(); ++code) table[code] = Decode(dtype, code);
  return table;
}

template <typename Round>
void RoundLoop(std::span<double> values, Round round) {
  for (double& value : values) value = round(value);
}

// first: index of the first code in its tensor, for messages.
void DecodeCodes(const std::byte* from, DType dtype, int64_t first, std::span<double> out) {
  switch (dtype) {
    case DType::kFloat64:
      return DecodeLoop<uint64_t>(from, out, [](uint64_t b) { return Decode(DType::kFloat64, b); });
    case DType::kFloat32:
      return DecodeLoop<float>(from, out, Widen);
    case DType::kFloat16:
      return DecodeLoop<uint16_t>(from, out, [](uint16_t b) { return Widen(F32FromF16(b)); });
    case DType::kBFloat16:
      return DecodeLoop<uint16_t>(from, out, [](uint16_t b) { return Widen(F32FromBF16(b)); });
    case DType::kInt8:
      return DecodeLoop<int8_t>(from, out, [](int8_t v) { return static_cast<double>(v); });
    case DType::kUInt8:
      return DecodeLoop<uint8_t>(from, out, [](uint8_t v) { return static_cast<double>(v); });
    case DType::kUInt16:
      return DecodeLoop<uint16_t>(from, out, [](uint16_t v) { return static_cast<double>(v); });
    case DType::kInt16:
      return DecodeLoop<int16_t>(from, out, [](int16_t v) { return static_cast<double>(v); });
    case DType::kInt32:
      return DecodeLoop<int32_t>(from, out, [](int32_t v) { return static_cast<double>(v); });
    case DType::kUInt32:
      return DecodeLoop<uint32_t>(from, out, [](uint32_t v) { return static_cast<double>(v); });
    case DType::kInt64:
      return DecodeLoop<int64_t>(from, out, [](int64_t v) { return static_cast<double>(v); });
    case DType::kUInt64:
      return DecodeLoop<uint64_t>(from, out, [](uint64_t v) { return static_cast<double>(v); });
    case DType::kFloat8E4M3FN: {
      static const std::array<double, 256> kTable = ByteTable(DType::kFloat8E4M3FN);
      return DecodeLoop<uint8_t>(from, out, [](uint8_t code) { return kTable[code]; });
    }
    case DType::kFloat8E5M2: {
      static const std::array<double, 256> kTable = ByteTable(DType::kFloat8E5M2);
      return DecodeLoop<uint8_t>(from, out, [](uint8_t code) { return kTable[code]; });
    }
    case DType::kFloat8E8M0FNU: {
      static const std::array<double, 256> kTable = ByteTable(DType::kFloat8E8M0FNU);
      return DecodeLoop<uint8_t>(from, out, [](uint8_t code) { return kTable[code]; });
    }
    case DType::kFloat4E2M1FN:
    case DType::kBool:
      break;
  }
  const int largest_byte = dtype == DType::kBool ? 1 : 0x0f;
  for (size_t i = 0; i < out.size(); ++i) {
    const int byte = std::to_integer<int>(from[i]);
    if (byte > largest_byte) ThrowNoCode(dtype, first + static_cast<int64_t>(i), byte);
    out[i] = Decode(dtype, static_cast<uint64_t>(byte));
  }
}

}  // namespace

bool IsDefined(DType dtype, const ConvertRule& rule) {
  if (!IsFloat(dtype)) return rule == ConvertRule{};
  const FloatType& type = FloatTypeOf(dtype);
  if (rule.overflow == Overflow::kInfinity) return type.has_infinity;
  if (rule.overflow == Overflow::kNaN) return type.has_nan;
  return true;
}

int CodeBits(DType dtype) {
  return dtype == DType::kFloat4E2M1FN ? 4 : static_cast<int>(8 * SizeInBytes(dtype));
}

uint64_t Encode(DType dtype, double x, const ConvertRule& rule) {
  CheckDefined(dtype, rule);
  if (!IsFloat(dtype)) return EncodeInteger(dtype, x);
  return EncodeFloat(dtype, FloatTypeOf(dtype), x, rule);
}

double Decode(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kFloat64: {
      const bool is_nan = (bits & ~kSign64) > kInfinity64;
      return std::bit_cast<double>(is_nan ? bits | kQuiet64 : bits);
    }
    case DType::kInt8:
      return static_cast<int8_t>(bits);
    case DType::kInt16:
      return static_cast<int16_t>(bits);
    case DType::kInt32:
      return static_cast<int32_t>(bits);
    case DType::kInt64:
      return static_cast<double>(static_cast<int64_t>(bits));
    case DType::kUInt8:
      return static_cast<uint8_t>(bits);
    case DType::kUInt16:
      return static_cast<uint16_t>(bits);
    case DType::kUInt32:
      return static_cast<uint32_t>(bits);
    case DType::kUInt64:
      return static_cast<double>(bits);
    case DType::kBool:
      return static_cast<uint8_t>(bits) != 0 ? 1.0 : 0.0;
    default:
      return DecodeFloat(dtype, FloatTypeOf(dtype), bits);
  }
}

double RoundTo(DType dtype, double x, const ConvertRule& rule) {
  return Decode(dtype, Encode(dtype, x, rule));
}

void RoundAll(std::span<double> values, DType dtype, const ConvertRule& rule) {
  CheckDefined(dtype, rule);
  const bool plain = !rule.flush_subnormals &&
                     (rule.overflow == Overflow::kDefault || rule.overflow == Overflow::kInfinity);
  if (plain && rule.rounding == Rounding::kNearestEven) {
    switch (dtype) {
      case DType::kFloat32:
        return RoundLoop(values, [](double x) { return RoundToF32(x); });
      case DType::kBFloat16:
        return RoundLoop(values, [](double x) { return RoundToBF16(x); });
      case DType::kFloat16:
        return RoundLoop(values, [](double x) { return RoundToF16(x); });
      default:
        break;
    }
  }
  if (plain && rule.rounding == Rounding::kTowardZero) {
    switch (dtype) {
      case DType::kFloat32:
        return RoundLoop(values, [](double x) { return RoundTowardZeroToF32(x); });
      case DType::kBFloat16:
        return RoundLoop(values, [](double x) { return RoundTowardZeroToBF16(x); });
      case DType::kFloat16:
        return RoundLoop(values, [](double x) { return RoundTowardZeroToF16(x); });
      default:
        break;
    }
  }
  if (!IsFloat(dtype)) {
    return RoundLoop(values, [&](double x) { return RoundTo(dtype, x, rule); });
  }
  const FloatType& type = FloatTypeOf(dtype);
  RoundLoop(values,
            [&](double x) { return DecodeFloat(dtype, type, EncodeFloat(dtype, type, x, rule)); });
}

void DecodeTo(const Tensor& tensor, int64_t first, std::span<double> out) {
  const size_t size = SizeInBytes(tensor.dtype);
  const size_t elements = tensor.bytes.size() / size;
  KVCHECK_CHECK(first >= 0 && static_cast<size_t>(first) <= elements &&
                    out.size() <= elements - static_cast<size_t>(first),
                "elements outside the tensor");
  DecodeCodes(tensor.bytes.data() + static_cast<size_t>(first) * size, tensor.dtype, first, out);
}

void DecodeBytes(const std::byte* from, DType dtype, std::span<double> out) {
  DecodeCodes(from, dtype, 0, out);
}

void EncodeFrom(std::span<const double> values, DType dtype, std::byte* out,
                const ConvertRule& rule) {
  CheckDefined(dtype, rule);
  if (rule == ConvertRule{}) {
    switch (dtype) {
      case DType::kFloat32:
        return EncodeLoop<float>(values, out, [](double x) { return static_cast<float>(x); });
      // The rounded value is exact in f32, so the second step changes only the type.
      case DType::kFloat16:
        return EncodeLoop<uint16_t>(
            values, out, [](double x) { return F16FromF32(static_cast<float>(RoundToF16(x))); });
      case DType::kBFloat16:
        return EncodeLoop<uint16_t>(
            values, out, [](double x) { return BF16FromF32(static_cast<float>(RoundToBF16(x))); });
      default:
        break;
    }
  }
  switch (SizeInBytes(dtype)) {
    case 1:
      return EncodeSlow<uint8_t>(values, dtype, out, rule);
    case 2:
      return EncodeSlow<uint16_t>(values, dtype, out, rule);
    case 4:
      return EncodeSlow<uint32_t>(values, dtype, out, rule);
    default:
      return EncodeSlow<uint64_t>(values, dtype, out, rule);
  }
}

}  // namespace kvcheck
