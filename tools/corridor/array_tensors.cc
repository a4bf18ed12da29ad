#include "tools/corridor/array_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/corridor/evaluate_case.h"

namespace kvcheck {
namespace {

[[noreturn]] void Refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kMissingData, why, fmt::format("array '{}'", name));
}

// Elements from..to - 1 of an array, in row-major order, one after the other into `to_bytes`.
void CopyElements(const Array& array, int64_t first, std::span<std::byte> out) {
  const size_t size = SizeInBytes(array.dtype);
  const size_t axes = array.extents.size();
  const auto* base = static_cast<const std::byte*>(array.data);
  if (axes == 0) {
    std::memcpy(out.data(), base, out.size());
    return;
  }
  std::vector<int64_t> at(axes);
  for (size_t axis = axes, rest = static_cast<size_t>(first); axis-- > 0;) {
    const auto extent = static_cast<size_t>(array.extents[axis]);
    at[axis] = static_cast<int64_t>(rest % extent);
    rest /= extent;
  }
  const int64_t row = array.extents.back();
  const int64_t stride = array.strides_bytes.back();
  for (size_t done = 0; done < out.size();) {
    const std::byte* from = base;
    for (size_t axis = 0; axis < axes; ++axis) from += at[axis] * array.strides_bytes[axis];
    const auto left = static_cast<int64_t>((out.size() - done) / size);
    const int64_t count = std::min(left, row - at.back());
    if (stride == static_cast<int64_t>(size)) {
      std::memcpy(out.data() + done, from, static_cast<size_t>(count) * size);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(out.data() + done + static_cast<size_t>(i) * size, from + i * stride, size);
      }
    }
    done += static_cast<size_t>(count) * size;
    at.back() += count;
    for (size_t axis = axes - 1; axis > 0 && at[axis] == array.extents[axis]; --axis) {
      at[axis] = 0;
      ++at[axis - 1];
    }
  }
}

}  // namespace

std::vector<int64_t> StridesOf(const std::string& name, const Array& array) {
  double elements = 1;
  for (const int64_t extent : array.extents) {
    if (extent < 0) Refuse(name, fmt::format("an extent of {}", extent));
    elements *= static_cast<double>(extent);
  }
  if (!array.strides_bytes.empty() && array.strides_bytes.size() != array.extents.size()) {
    Refuse(name, fmt::format("{} strides for {} axes: give one for each, or none",
                             array.strides_bytes.size(), array.extents.size()));
  }
  CheckFitsMemory(elements * static_cast<double>(SizeInBytes(array.dtype)),
                  fmt::format("array '{}'", name));
  if (elements > 0 && array.data == nullptr) Refuse(name, "its data are a null pointer");
  if (!array.strides_bytes.empty()) return array.strides_bytes;
  std::vector<int64_t> strides(array.extents.size());
  auto bytes = static_cast<int64_t>(SizeInBytes(array.dtype));
  for (size_t axis = strides.size(); axis-- > 0;) {
    strides[axis] = bytes;
    bytes *= std::max<int64_t>(array.extents[axis], 1);
  }
  return strides;
}

Tensor ToTensor(const std::string& name, const Array& array) {
  Array with_strides = array;
  with_strides.strides_bytes = StridesOf(name, array);
  Tensor tensor(array.dtype, Shape::Unnamed(array.extents));
  if (!tensor.bytes.empty()) CopyElements(with_strides, 0, tensor.bytes);
  return tensor;
}

TensorMap ToTensors(const Arrays& arrays) {
  TensorMap tensors;
  for (const auto& [name, array] : arrays) tensors[name] = ToTensor(name, array);
  return tensors;
}

ArrayObserved::ArrayObserved(const Arrays& arrays) : arrays_(arrays) {
  for (auto& [name, array] : arrays_) {
    array.strides_bytes = StridesOf(name, array);
    OutputInfo info;
    info.name = name;
    info.dtype = array.dtype;
    info.shape = Shape::Unnamed(array.extents);
    infos_.emplace(name, std::move(info));
  }
}

const OutputInfo* ArrayObserved::Find(const std::string& name) const {
  const auto found = infos_.find(name);
  return found == infos_.end() ? nullptr : &found->second;
}

std::vector<std::string> ArrayObserved::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : infos_) names.push_back(name);
  return names;
}

void ArrayObserved::Read(const std::string& name, int64_t first_element,
                         std::span<std::byte> out) const {
  if (!out.empty()) CopyElements(arrays_.at(name), first_element, out);
}

}  // namespace kvcheck
