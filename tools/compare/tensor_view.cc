#include "tools/compare/tensor_view.h"

#include <utility>

namespace kvcheck {

TensorView::TensorView(DType dtype, Shape shape) {
  info_.name = kTensorName;
  info_.dtype = dtype;
  info_.row_length = shape.RowLength();
  info_.shape = std::move(shape);
}

FileTensor::FileTensor(TensorSource& file, const std::string& path, Shape shape, std::mutex& mutex)
    : TensorView(DatasetRecord(file, path).dtype, std::move(shape)),
      file_(file),
      path_(path),
      mutex_(mutex) {}

void FileTensor::Read(const std::string&, int64_t first_element, std::span<std::byte> out) const {
  const size_t size = SizeInBytes(info_.dtype);
  const std::lock_guard<std::mutex> lock(mutex_);
  file_.ReadElements(path_, first_element, static_cast<int64_t>(out.size() / size), out.data());
}

}  // namespace kvcheck
