#include "tools/process/wire_planes.h"

#include <fmt/format.h>

#include <cstring>

namespace kvcheck {
namespace {

void PutPlane(const Plane& plane, const StoredPlane& stored, const VectorExtents& all,
              WireWriter& writer) {
  const size_t vector = plane.Bytes();
  if (plane.scope == PlaneScope::kTensor) {
    std::byte* to = writer.Array(plane.dtype, {&plane.elements, 1}).data();
    if (vector > 0) std::memcpy(to, stored.bytes, vector);
    return;
  }
  const std::array<int64_t, 4> extents = {all.rows, all.heads, all.columns, plane.elements};
  std::byte* to = writer.Array(plane.dtype, extents).data();
  if (vector == 0) return;
  for (int64_t b = 0; b < all.rows; ++b) {
    for (int64_t h = 0; h < all.heads; ++h) {
      for (int64_t c = 0; c < all.columns; ++c, to += vector) {
        std::memcpy(to, stored.At(b, h, c), vector);
      }
    }
  }
}

}  // namespace

void WritePlanes(std::string_view key, const Planes& planes,
                 const std::array<StoredPlane, kMaxPlanes>& stored, const VectorExtents& all,
                 WireWriter& writer) {
  writer.Key(key);
  writer.StartArray(planes.size());
  for (size_t i = 0; i < planes.size(); ++i) PutPlane(planes[i], stored[i], all, writer);
}

std::vector<WireArray> ReadPlanes(const WireValue& list, std::string_view name,
                                  const Planes& planes, std::string_view format, int64_t rows,
                                  int64_t heads, int64_t* columns) {
  const std::vector<WireValue> entries = list.Entries(name);
  if (entries.size() != planes.size()) {
    throw WireError(fmt::format("'{}' of a state has {} arrays, {} has {}", name, entries.size(),
                                format, planes.size()));
  }
  std::vector<WireArray> arrays;
  for (size_t i = 0; i < planes.size(); ++i) {
    const Plane& plane = planes[i];
    const WireArray array = entries[i].AsArray(name);
    if (plane.scope == PlaneScope::kTensor) {
      if (array.dtype != plane.dtype || !array.HasExtents({&plane.elements, 1})) {
        throw WireError(
            fmt::format("'{}' of a state has an array {} where {} ({}) belongs, of the format {}",
                        name, ShapeText(array), ShortName(plane.dtype), plane.elements, format));
      }
    } else {
      const bool fits = array.rank == 4 && array.dtype == plane.dtype && array.extents[0] == rows &&
                        array.extents[1] == heads && array.extents[3] == plane.elements;
      if (!fits) {
        throw WireError(fmt::format(
            "'{}' of a state has an array {} where {} ({}, {}, columns, {}) belongs, of the format "
            "{}",
            name, ShapeText(array), ShortName(plane.dtype), rows, heads, plane.elements, format));
      }
      TakeColumns(array.extents[2], name, columns);
    }
    arrays.push_back(array);
  }
  return arrays;
}

std::string ShapeText(const WireArray& array) {
  std::string text = fmt::format("{} (", ShortName(array.dtype));
  for (size_t i = 0; i < array.rank; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", array.extents[i]);
  }
  return text + ")";
}

void TakeColumns(int64_t of_array, std::string_view name, int64_t* columns) {
  if (*columns >= 0 && of_array != *columns) {
    throw WireError(fmt::format("'{}' of a state has {} columns, another array has {}", name,
                                of_array, *columns));
  }
  *columns = of_array;
}

}  // namespace kvcheck
