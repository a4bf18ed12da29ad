// Storage types of tensors, with the facts about each that bounds are made of. Conversions are
// arithmetic and live in reference/numerics/convert.h.

#ifndef REFERENCE_SPEC_DTYPE_H_
#define REFERENCE_SPEC_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kvcheck {

enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3FN,   // OCP fp8 E4M3: no infinity, one NaN pattern per sign
  kFloat8E5M2,     // OCP fp8 E5M2: IEEE-like, infinities and NaNs
  kFloat8E8M0FNU,  // OCP MX scale: unsigned power of two, 0xff is NaN
  kFloat4E2M1FN,   // OCP fp4: sign and index into {0, .5, 1, 1.5, 2, 3, 4, 6}; one per byte here
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kBool,  // one byte, 0 or 1
};

// All types, in declaration order.
std::span<const DType> AllDTypes();

// The name in files, as in PyTorch and safetensors conventions: "bfloat16", "float8_e4m3fn".
std::string_view Name(DType dtype);
// The name in case texts: "bf16", "f8e4m3fn".
std::string_view ShortName(DType dtype);
// Accepts both names.
std::optional<DType> ParseDType(std::string_view name);

size_t SizeInBytes(DType dtype);
bool IsFloat(DType dtype);

// A binary floating-point storage type: value = (-1)^s 2^(e - bias) (1 + m / 2^mantissa_bits),
// and for e = 0 (where has_subnormals) m 2^(1 - bias - mantissa_bits).
struct FloatType {
  int exponent_bits;
  int mantissa_bits;  // stored, without the hidden one
  int bias;
  bool is_signed;
  bool has_infinity;
  bool has_nan;
  bool has_subnormals;
  double largest_finite;
  double smallest_normal;
  double smallest_subnormal;
};

// Precondition: IsFloat(dtype).
const FloatType& FloatTypeOf(DType dtype);

// Unit roundoff of rounding to nearest: 2^-(mantissa_bits + 1).
double UnitRoundoff(DType dtype);
// Half of the smallest subnormal: the absolute error of rounding to nearest below the normal range.
double HalfSmallestSubnormal(DType dtype);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_DTYPE_H_
