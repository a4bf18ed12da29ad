#include "golden/file_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.h"

namespace kvcheck {

std::vector<ListedTensor> ListTensors(const FileIndex& index) {
  std::vector<ListedTensor> tensors;
  for (const auto& [path, record] : index.objects) {
    if (!record.is_dataset && record.problem.empty()) continue;
    ListedTensor tensor{path, record.dtype, record.shape, "", record.problem};
    const auto format = record.attributes.find("kv_format");
    if (format != record.attributes.end() && std::holds_alternative<std::string>(format->second)) {
      tensor.kv_format = std::get<std::string>(format->second);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

const ObjectRecord& DatasetRecord(const TensorSource& source, const std::string& dataset) {
  const auto found = source.index().objects.find(dataset);
  if (found == source.index().objects.end() ||
      (!found->second.is_dataset && found->second.problem.empty())) {
    throw Error(ErrorCode::kMissingData, fmt::format("there is no dataset '{}'", dataset),
                source.path());
  }
  if (!found->second.problem.empty()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("'{}' cannot be read: {}", dataset, found->second.problem),
                source.path());
  }
  return found->second;
}

std::optional<int64_t> BoundedBytes(const Shape& shape, DType dtype, int64_t limit) {
  // An extent of 0 must not excuse the others: their product is computed elsewhere (row counts).
  int64_t bytes = static_cast<int64_t>(SizeInBytes(dtype));
  bool empty = false;
  for (const Axis& axis : shape.axes) {
    if (axis.extent < 0) return std::nullopt;
    if (axis.extent == 0) {
      empty = true;
      continue;
    }
    if (axis.extent > limit / bytes) return std::nullopt;
    bytes *= axis.extent;
  }
  return empty ? 0 : bytes;
}

bool IsAxisLabel(std::string_view label) {
  constexpr size_t kMaxLabelBytes = 32;
  return !label.empty() && label.size() <= kMaxLabelBytes &&
         std::all_of(label.begin(), label.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
}

int64_t BlockElements(DType dtype) {
  return (int64_t{1} << 20) / static_cast<int64_t>(SizeInBytes(dtype));
}

Tensor ReadTensor(TensorSource& source, const std::string& dataset) {
  const ObjectRecord& record = DatasetRecord(source, dataset);
  Tensor tensor(record.dtype, record.shape);
  const int64_t elements = record.shape.ElementCount();
  const int64_t block = BlockElements(record.dtype);
  for (int64_t first = 0; first < elements; first += block) {
    source.ReadElements(
        dataset, first, std::min(block, elements - first),
        tensor.bytes.data() + static_cast<size_t>(first) * SizeInBytes(record.dtype));
  }
  return tensor;
}

Tensor ReadRows(TensorSource& source, const std::string& dataset, int64_t first_row,
                int64_t row_count) {
  const ObjectRecord& record = DatasetRecord(source, dataset);
  if (first_row < 0 || row_count < 0 || first_row > record.shape.RowCount() - row_count) {
    throw Error(ErrorCode::kMissingData,
                fmt::format("'{}' has {} rows; rows {} to {} were asked", dataset,
                            record.shape.RowCount(), first_row, first_row + row_count),
                source.path());
  }
  Tensor tensor(record.dtype, Shape::Unnamed({row_count, record.shape.RowLength()}));
  if (!tensor.bytes.empty()) {
    const int64_t length = record.shape.RowLength();
    source.ReadElements(dataset, first_row * length, row_count * length, tensor.bytes.data());
  }
  return tensor;
}

}  // namespace kvcheck
