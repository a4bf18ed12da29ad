#include "reference/spec/implementation.h"

#include <algorithm>
#include <cstring>

#include "reference/spec/error.h"

namespace kvcheck {

MemorySink::MemorySink(TensorMap tensors) {
  for (auto& [name, tensor] : tensors) {
    MemorySink::Declare(name, tensor.dtype, tensor.shape);
    tensors_[name] = std::move(tensor);
  }
}

void MemorySink::Declare(const std::string& name, DType dtype, const Shape& shape) {
  tensors_[name] = Tensor(dtype, shape);
  OutputInfo info;
  info.name = name;
  info.dtype = dtype;
  info.shape = shape;
  info.row_length = shape.RowLength();
  infos_[name] = info;
}

void MemorySink::Write(const std::string& name, int64_t first_element,
                       std::span<const std::byte> bytes) {
  const auto found = tensors_.find(name);
  KVCHECK_CHECK(found != tensors_.end(), "output '" + name + "' was not declared");
  Tensor& tensor = found->second;
  const size_t begin = static_cast<size_t>(first_element) * SizeInBytes(tensor.dtype);
  KVCHECK_CHECK(begin <= tensor.bytes.size() && bytes.size() <= tensor.bytes.size() - begin,
                "rows outside the declared shape");
  std::copy(bytes.begin(), bytes.end(), tensor.bytes.begin() + static_cast<std::ptrdiff_t>(begin));
}

const OutputInfo* MemorySink::Find(const std::string& name) const {
  const auto found = infos_.find(name);
  return found == infos_.end() ? nullptr : &found->second;
}

std::vector<std::string> MemorySink::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : infos_) names.push_back(name);
  return names;
}

void MemorySink::Read(const std::string& name, int64_t first_element,
                      std::span<std::byte> out) const {
  const Tensor& tensor = Get(tensors_, name);
  const size_t begin = static_cast<size_t>(first_element) * SizeInBytes(tensor.dtype);
  KVCHECK_CHECK(begin <= tensor.bytes.size() && out.size() <= tensor.bytes.size() - begin,
                "rows outside the tensor");
  std::memcpy(out.data(), tensor.bytes.data() + begin, out.size());
}

}  // namespace kvcheck
