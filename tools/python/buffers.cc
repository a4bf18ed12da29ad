#include "tools/python/buffers.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>

namespace kvcheck {
namespace {

namespace nb = nanobind;

[[noreturn]] void Refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kMissingData, why, fmt::format("array '{}'", name));
}

// Gives a vector to Python as an array of T, which frees it with the last view of it.
template <typename T, typename Stored>
nb::object Owned(std::vector<Stored> elements, const std::vector<size_t>& extents) {
  static_assert(sizeof(T) == sizeof(Stored));
  auto* kept = new std::vector<Stored>(std::move(elements));
  const nb::capsule owner(
      kept, [](void* vector) noexcept { delete static_cast<std::vector<Stored>*>(vector); });
  // A null pointer is no array, even without elements.
  static T nothing{};
  T* data = kept->empty() ? &nothing : reinterpret_cast<T*>(kept->data());
  return nb::cast(nb::ndarray<nb::numpy, T>(data, extents.size(), extents.data(), owner));
}

}  // namespace

HeldArrays::HeldArrays(const nb::dict& arrays) {
  try {
    for (const auto& [name, pair] : arrays) Add(nb::cast<std::string>(name), pair);
  } catch (...) {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
    throw;
  }
}

HeldArrays::~HeldArrays() {
  for (Py_buffer& view : views_) PyBuffer_Release(&view);
}

void HeldArrays::Add(const std::string& name, nb::handle pair) {
  if (!PyTuple_Check(pair.ptr()) || nb::len(pair) != 2) Refuse(name, "is no pair (object, type)");
  const nb::object object = pair[0];
  const std::string type = nb::cast<std::string>(pair[1]);
  Array array;
  const std::optional<DType> dtype = ParseDType(type);
  if (!dtype) Refuse(name, fmt::format("holds elements of type '{}', which is not known", type));
  array.dtype = *dtype;
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_STRIDES) != 0) throw nb::python_error();
  views_.push_back(view);
  if (view.itemsize != static_cast<Py_ssize_t>(SizeInBytes(array.dtype))) {
    Refuse(name, fmt::format("elements of {} bytes, where type {} has {}", view.itemsize,
                             Name(array.dtype), SizeInBytes(array.dtype)));
  }
  if (view.ndim > 0 && (view.shape == nullptr || view.strides == nullptr)) {
    Refuse(name, "its buffer says no shape");
  }
  for (int axis = 0; axis < view.ndim; ++axis) {
    array.extents.push_back(view.shape[axis]);
    array.strides_bytes.push_back(view.strides[axis]);
  }
  array.data = view.buf;
  arrays_.emplace(name, std::move(array));
}

nb::object PythonTensor(Tensor tensor) {
  nb::list shape;
  for (const Axis& axis : tensor.shape.axes) shape.append(axis.extent);
  const std::vector<size_t> extents = {tensor.bytes.size()};
  return nb::make_tuple(Owned<uint8_t>(std::move(tensor.bytes), extents),
                        std::string(Name(tensor.dtype)), nb::tuple(shape));
}

nb::dict PythonTensors(TensorMap tensors) {
  nb::dict result;
  for (auto& [name, tensor] : tensors) result[name.c_str()] = PythonTensor(std::move(tensor));
  return result;
}

nb::object PythonNumbers(std::vector<double> numbers, const std::vector<int64_t>& extents) {
  std::vector<size_t> shape;
  for (const int64_t extent : extents) shape.push_back(static_cast<size_t>(extent));
  return Owned<double>(std::move(numbers), shape);
}

}  // namespace kvcheck
