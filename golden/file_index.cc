#include "golden/file_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.h"

namespace kvcheck {

const ObjectRecord& DatasetRecord(const RowSource& source, const std::string& dataset) {
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

int64_t RowsPerBlock(const ObjectRecord& record) {
  constexpr int64_t kBlockBytes = int64_t{1} << 20;
  const int64_t row_bytes =
      record.shape.RowLength() * static_cast<int64_t>(SizeInBytes(record.dtype));
  return std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, row_bytes));
}

Tensor ReadTensor(RowSource& source, const std::string& dataset) {
  const ObjectRecord& record = DatasetRecord(source, dataset);
  Tensor tensor(record.dtype, record.shape);
  const int64_t rows = record.shape.RowCount();
  const int64_t block = RowsPerBlock(record);
  const size_t row_bytes =
      static_cast<size_t>(record.shape.RowLength()) * SizeInBytes(record.dtype);
  for (int64_t row = 0; row < rows; row += block) {
    source.ReadRows(dataset, row, std::min(block, rows - row),
                    tensor.bytes.data() + static_cast<size_t>(row) * row_bytes);
  }
  return tensor;
}

Tensor ReadRows(RowSource& source, const std::string& dataset, int64_t first_row,
                int64_t row_count) {
  const ObjectRecord& record = DatasetRecord(source, dataset);
  if (first_row < 0 || row_count < 0 || first_row > record.shape.RowCount() - row_count) {
    throw Error(ErrorCode::kMissingData,
                fmt::format("'{}' has {} rows; rows {} to {} were asked", dataset,
                            record.shape.RowCount(), first_row, first_row + row_count),
                source.path());
  }
  Tensor tensor(record.dtype, Shape::Unnamed({row_count, record.shape.RowLength()}));
  if (!tensor.bytes.empty()) source.ReadRows(dataset, first_row, row_count, tensor.bytes.data());
  return tensor;
}

}  // namespace kvcheck
