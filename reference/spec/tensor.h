// A tensor as stored: a type, a shape and its bytes, nothing interpreted. Row-major, little endian,
// contiguous.

#ifndef REFERENCE_SPEC_TENSOR_H_
#define REFERENCE_SPEC_TENSOR_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/shape.h"

namespace kvcheck {

struct Tensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<std::byte> bytes;

  Tensor() = default;
  // Zero-filled.
  Tensor(DType type, Shape extents);

  template <typename T>
  T* As() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <typename T>
  const T* As() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  int64_t ElementCount() const { return shape.ElementCount(); }
  bool operator==(const Tensor&) const = default;
};

// The inputs of a case, or the outputs of an implementation, by name ("q", "k_codes", "out", ...).
using TensorMap = std::map<std::string, Tensor>;

// Errors: kMissingData when the name is absent; the message lists the names present.
const Tensor& Get(const TensorMap& tensors, const std::string& name);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TENSOR_H_
