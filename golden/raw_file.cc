#include "golden/raw_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <string_view>
#include <vector>

#include "golden/numpy_array.h"
#include "golden/safetensors_header.h"
#include "golden/schema.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"

namespace kvcheck {
namespace {

bool IsThere(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0;
}

// "2x8x64" or "2,8,64"; nullopt for anything else.
std::optional<Shape> ParseExtents(std::string_view text) {
  std::vector<int64_t> extents;
  const char separator = text.find('x') == std::string_view::npos ? ',' : 'x';
  int64_t extent = 0;
  size_t digits = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == separator) {
      if (digits == 0) return std::nullopt;
      extents.push_back(extent);
      extent = 0;
      digits = 0;
      continue;
    }
    if (text[i] < '0' || text[i] > '9' || ++digits > 18) return std::nullopt;
    extent = extent * 10 + (text[i] - '0');
  }
  return Shape::Unnamed(extents);
}

DType TypeBehind(const std::string& path, const std::string& text) {
  if (const std::optional<DType> dtype = ParseDType(text)) return *dtype;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} is not a type{}: behind a file stand its type and its shape, as in "
                          "FILE:bf16:2x8x128x64",
                          QuotedName(text), DidYouMean(text, TypeNames())),
              path);
}

}  // namespace

TensorPlace ParseTensorPlace(const std::string& text) {
  const size_t last = text.rfind(':');
  if (last == std::string::npos || IsThere(text)) return {text, {}, {}};
  const std::string before = text.substr(0, last);
  const std::string behind = text.substr(last + 1);
  if (IsThere(before)) return {before, TypeBehind(before, behind), {}};
  const size_t first = before.rfind(':');
  if (first == std::string::npos) return {text, {}, {}};
  const std::string path = before.substr(0, first);
  if (!IsThere(path)) return {text, {}, {}};
  TensorPlace place = {path, TypeBehind(path, before.substr(first + 1)), ParseExtents(behind)};
  if (!place.shape) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is not a shape: write the extents, as in FILE:bf16:2x8x128x64",
                            QuotedName(behind)),
                path);
  }
  return place;
}

RawFile::RawFile(const TensorPlace& place, const ReadLimits& limits) : file_(place.path) {
  KVCHECK_CHECK(place.dtype && place.shape, "raw elements of no type or shape");
  const Shape& shape = *place.shape;
  if (shape.axes.size() > static_cast<size_t>(kMaxTensorRank)) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("a shape of rank {}, at most {} is read", shape.axes.size(), kMaxTensorRank),
        place.path);
  }
  const std::optional<int64_t> bytes = BoundedBytes(shape, *place.dtype, limits.max_tensor_bytes);
  if (!bytes || *bytes != file_.size()) {
    const auto width = static_cast<int64_t>(SizeInBytes(*place.dtype));
    throw Error(
        ErrorCode::kUnreadableFile,
        fmt::format(
            "it has {} bytes, and {} of {} {}{}", file_.size(), ToString(shape), Name(*place.dtype),
            bytes ? fmt::format("need {}", *bytes) : "are more than is read",
            file_.size() % width == 0
                ? fmt::format(": its bytes are {} elements of that type", file_.size() / width)
                : ""),
        place.path);
  }
  ObjectRecord record;
  record.is_dataset = true;
  record.dtype = *place.dtype;
  record.shape = shape;
  record.data_offset = 0;
  index_.objects["/"].attributes[kNamedByFile] = int64_t{1};
  index_.objects["/" + TensorNameOfFile(place.path)] = std::move(record);
}

void RawFile::ReadElements(const std::string& dataset, int64_t first, int64_t count,
                           std::byte* out) {
  const ObjectRecord& record = DatasetRecord(*this, dataset);
  KVCHECK_CHECK(first >= 0 && count >= 0 && first <= record.shape.ElementCount() - count,
                "elements outside of the tensor");
  const auto width = static_cast<int64_t>(SizeInBytes(record.dtype));
  file_.ReadAt(first * width, out, static_cast<size_t>(count * width));
  file_.ThrowIfChanged();
}

}  // namespace kvcheck
