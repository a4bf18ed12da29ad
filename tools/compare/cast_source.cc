#include "tools/compare/cast_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/tensor.h"

namespace kvcheck {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 16;

// The range of an integer type: -2^digits (of signed ones) to 2^digits - 1.
struct IntegerType {
  int digits;
  bool is_signed;
};

IntegerType IntegerTypeOf(DType dtype) {
  const int bits = static_cast<int>(8 * SizeInBytes(dtype));
  switch (dtype) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return {bits - 1, true};
    case DType::kBool:
      return {1, false};
    default:
      return {bits, false};
  }
}

bool FloatHoldsFloat(const FloatType& wide, const FloatType& narrow) {
  return wide.mantissa_bits >= narrow.mantissa_bits &&
         wide.largest_finite >= narrow.largest_finite &&
         wide.smallest_subnormal <= narrow.smallest_subnormal &&
         wide.is_signed >= narrow.is_signed && wide.has_infinity >= narrow.has_infinity &&
         wide.has_nan >= narrow.has_nan;
}

}  // namespace

bool HoldsEveryValue(DType wide, DType narrow) {
  if (wide == narrow) return true;
  if (IsFloat(wide) && IsFloat(narrow)) {
    return FloatHoldsFloat(FloatTypeOf(wide), FloatTypeOf(narrow));
  }
  if (IsFloat(narrow) || wide == DType::kBool) return false;
  const IntegerType from = IntegerTypeOf(narrow);
  if (!IsFloat(wide)) {
    const IntegerType to = IntegerTypeOf(wide);
    return to.digits >= from.digits && to.is_signed >= from.is_signed;
  }
  // 2^digits itself, the lowest value of a signed type, has one significant bit. e8m0fnu, which is
  // unsigned, has no zero.
  const FloatType& to = FloatTypeOf(wide);
  double largest = 1;
  for (int i = 0; i < from.digits; ++i) largest *= 2;
  return to.is_signed && to.mantissa_bits + 1 >= from.digits &&
         to.largest_finite >= (from.is_signed ? largest : largest - 1);
}

namespace {

// Integers have values that no rounding to them gives.
bool IsValueOf(DType type, double x) {
  if (IsFloat(type)) {
    const double rounded = RoundTo(type, x);
    return std::isnan(x) ? std::isnan(rounded) : rounded == x;
  }
  const IntegerType integer = IntegerTypeOf(type);
  const double end = std::ldexp(1.0, integer.digits);
  return std::trunc(x) == x && x < end && x >= (integer.is_signed ? -end : 0.0);
}

}  // namespace

std::optional<Tensor> ExactlyAs(const Tensor& tensor, DType to, int64_t* first, int64_t* count) {
  *first = -1;
  *count = 0;
  Tensor cast(to, tensor.shape);
  const int64_t elements = tensor.ElementCount();
  // Beyond 2^53 an integer of 64 bits is read as its neighbour.
  const bool may_be_rounded =
      !IsFloat(tensor.dtype) && SizeInBytes(tensor.dtype) == sizeof(double) && to != tensor.dtype;
  std::vector<double> values;
  for (int64_t begin = 0; begin < elements; begin += kBlockElements) {
    values.resize(static_cast<size_t>(std::min(kBlockElements, elements - begin)));
    DecodeTo(tensor, begin, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool is_certain = !may_be_rounded || std::fabs(values[i]) < 0x1p53;
      if (is_certain && IsValueOf(to, values[i])) continue;
      if (*first < 0) *first = begin + static_cast<int64_t>(i);
      ++*count;
    }
    if (*count > 0) continue;
    EncodeFrom(values, to, cast.bytes.data() + static_cast<size_t>(begin) * SizeInBytes(to));
  }
  if (*count > 0) return std::nullopt;
  return cast;
}

CastTensor::CastTensor(const TensorView& tensor, DType wide, const std::string& where)
    : TensorView(wide, tensor.info().shape), tensor_(tensor) {
  const DType own = tensor.info().dtype;
  if (HoldsEveryValue(wide, own)) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} does not hold every value of {}: name a type that does", Name(wide),
                          Name(own)),
              fmt::format("cast of {}", where));
}

void CastTensor::Read(const std::string& name, int64_t first_element,
                      std::span<std::byte> out) const {
  const size_t wide_size = SizeInBytes(info_.dtype);
  const size_t own_size = SizeInBytes(tensor_.info().dtype);
  Tensor block;
  block.dtype = tensor_.info().dtype;
  std::vector<double> values;
  while (!out.empty()) {
    const size_t count = std::min(out.size() / wide_size, static_cast<size_t>(kBlockElements));
    block.bytes.resize(count * own_size);
    values.resize(count);
    tensor_.Read(name, first_element, block.bytes);
    DecodeTo(block, 0, values);
    EncodeFrom(values, info_.dtype, out.data());
    out = out.subspan(count * wide_size);
    first_element += static_cast<int64_t>(count);
  }
}

}  // namespace kvcheck
