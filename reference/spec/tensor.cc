#include "reference/spec/tensor.h"

#include <fmt/format.h>

#include "reference/spec/error.h"

namespace kvcheck {

Tensor::Tensor(DType type, Shape extents)
    : dtype(type),
      shape(std::move(extents)),
      bytes(static_cast<size_t>(shape.ElementCount()) * SizeInBytes(type)) {}

const Tensor& Get(const TensorMap& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::string present;
  for (const auto& [other, tensor] : tensors) present += (present.empty() ? "" : ", ") + other;
  throw Error(ErrorCode::kMissingData,
              fmt::format("tensor '{}' is needed and absent; present: {}; add it under this name",
                          name, present.empty() ? "none" : present));
}

}  // namespace kvcheck
