#include "reference/spec/dtype.h"

#include <array>
#include <bit>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::string_view short_name;
  size_t size_bytes;
  bool is_float;
};

constexpr std::array<Entry, 17> kEntries = {{
    {DType::kFloat64, "float64", "f64", 8, true},
    {DType::kFloat32, "float32", "f32", 4, true},
    {DType::kFloat16, "float16", "f16", 2, true},
    {DType::kBFloat16, "bfloat16", "bf16", 2, true},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", "f8e4m3fn", 1, true},
    {DType::kFloat8E5M2, "float8_e5m2", "f8e5m2", 1, true},
    {DType::kFloat8E8M0FNU, "float8_e8m0fnu", "f8e8m0fnu", 1, true},
    {DType::kFloat4E2M1FN, "float4_e2m1fn", "f4e2m1fn", 1, true},
    {DType::kInt8, "int8", "i8", 1, false},
    {DType::kInt16, "int16", "i16", 2, false},
    {DType::kInt32, "int32", "i32", 4, false},
    {DType::kInt64, "int64", "i64", 8, false},
    {DType::kUInt8, "uint8", "u8", 1, false},
    {DType::kUInt16, "uint16", "u16", 2, false},
    {DType::kUInt32, "uint32", "u32", 4, false},
    {DType::kUInt64, "uint64", "u64", 8, false},
    {DType::kBool, "bool", "b8", 1, false},
}};

constexpr std::array<DType, kEntries.size()> kAll = [] {
  std::array<DType, kEntries.size()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = kEntries[i].dtype;
  return all;
}();

const Entry& EntryOf(DType dtype) { return kEntries[static_cast<size_t>(dtype)]; }

// exponent, mantissa, bias, signed, inf, nan, subnormals, largest, smallest normal, smallest subn.
constexpr FloatType kF64 = {
    11, 52, 1023, true, true, true, true, 0x1.fffffffffffffp1023, 0x1p-1022, 0x1p-1074};
constexpr FloatType kF32 = {8, 23, 127, true, true, true, true, 0x1.fffffep127, 0x1p-126, 0x1p-149};
constexpr FloatType kF16 = {5, 10, 15, true, true, true, true, 65504.0, 0x1p-14, 0x1p-24};
constexpr FloatType kBF16 = {8, 7, 127, true, true, true, true, 0x1.fep127, 0x1p-126, 0x1p-133};
constexpr FloatType kE4M3 = {4, 3, 7, true, false, true, true, 448.0, 0x1p-6, 0x1p-9};
constexpr FloatType kE5M2 = {5, 2, 15, true, true, true, true, 57344.0, 0x1p-14, 0x1p-16};
constexpr FloatType kE8M0 = {8, 0, 127, false, false, true, false, 0x1p127, 0x1p-127, 0x1p-127};
constexpr FloatType kE2M1 = {2, 1, 1, true, false, false, true, 6.0, 1.0, 0.5};

}  // namespace

std::span<const DType> AllDTypes() { return kAll; }
std::string_view Name(DType dtype) { return EntryOf(dtype).name; }
std::string_view ShortName(DType dtype) { return EntryOf(dtype).short_name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (name == entry.name || name == entry.short_name) return entry.dtype;
  }
  return std::nullopt;
}

size_t SizeInBytes(DType dtype) { return EntryOf(dtype).size_bytes; }
bool IsFloat(DType dtype) { return EntryOf(dtype).is_float; }

const FloatType& FloatTypeOf(DType dtype) {
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
    default:
      break;
  }
  KVCHECK_CHECK(false, "not a floating-point type");
}

double UnitRoundoff(DType dtype) {
  // 2^-(bits + 1), by its exponent: simulated kernels ask at every operation.
  return std::bit_cast<double>(static_cast<uint64_t>(1022 - FloatTypeOf(dtype).mantissa_bits)
                               << 52);
}

double HalfSmallestSubnormal(DType dtype) { return FloatTypeOf(dtype).smallest_subnormal * 0.5; }

}  // namespace kvcheck
