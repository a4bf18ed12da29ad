// Small conveniences of the tests of this room: tensors from lists of bits and values.

#ifndef TESTS_REFERENCE_FORMATS_SAMPLE_H_
#define TESTS_REFERENCE_FORMATS_SAMPLE_H_

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// One row.
inline Tensor RowOf(DType dtype, const std::vector<double>& values) {
  Tensor tensor(dtype, {{"", 1}, {"", static_cast<int64_t>(values.size())}});
  EncodeFrom(values, dtype, tensor.bytes.data());
  return tensor;
}

inline std::vector<double> ValuesOf(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

// Codes of values in a type.
inline std::vector<uint64_t> BitsOf(DType dtype, const std::vector<double>& values) {
  std::vector<uint64_t> bits;
  for (const double value : values) bits.push_back(Encode(dtype, value));
  return bits;
}

// The bytes of a tensor, two digits each.
inline std::string Hex(const Tensor& tensor) {
  std::string text;
  for (const std::byte byte : tensor.bytes) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

// The witness row of reference/formats/formats.md: 32 values that are exact in every type.
inline std::vector<double> WitnessRow() {
  std::vector<double> row;
  for (int i = 0; i < 32; ++i) row.push_back(((7 * i % 32) - 12) / 8.0);
  return row;
}

inline std::vector<uint32_t> WordsOf(const Tensor& tensor) {
  return {tensor.As<uint32_t>(), tensor.As<uint32_t>() + tensor.ElementCount()};
}

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_FORMATS_SAMPLE_H_
