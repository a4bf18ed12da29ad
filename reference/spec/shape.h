// Shapes with named axes. An axis is a letter of {B, Hq, Hkv, L, T, Dk, Dv, G, W}, "" where nothing
// names it, or in a stranger's tensor any short text that the stranger chose:
//   B batch row, Hq query head, Hkv key/value head, L query token, T key token, Dk / Dv channel of
//   K / V, G quantization group of a row, W packed word of a row.

#ifndef REFERENCE_SPEC_SHAPE_H_
#define REFERENCE_SPEC_SHAPE_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

struct Axis {
  std::string name;  // "" when unnamed
  int64_t extent = 0;
  // Of a slice of a longer axis: the coordinate there of the first one here. Reports name elements
  // by their coordinates in the whole.
  int64_t first = 0;
  bool is_slice = false;
  bool operator==(const Axis&) const = default;
};

// Row-major: the last axis is contiguous.
struct Shape {
  std::vector<Axis> axes;

  Shape() = default;
  Shape(std::initializer_list<Axis> list) : axes(list) {}
  static Shape Unnamed(const std::vector<int64_t>& extents);

  int64_t ElementCount() const;  // 1 for a scalar (no axes)
  // Extent of the last axis, 1 for a scalar.
  int64_t RowLength() const;
  int64_t RowCount() const;  // ElementCount() / RowLength(), 0 when there are no elements
  // Extents equal; names are not compared.
  bool SameExtents(const Shape& other) const;
  // Coordinates of a linear element index, one per axis, each from 0.
  std::vector<int64_t> Coordinates(int64_t element) const;
  bool operator==(const Shape&) const = default;
};

// "B=2 Hq=8 L=4 Dv=64"; unnamed axes print as their extent alone: "2x8x4x64".
std::string ToString(const Shape& shape);
// "[b=1, hq=3, l=0, dv=17]" for one element; unnamed axes print by index: "[1, 3, 0, 17]".
std::string ElementName(const Shape& shape, int64_t element);
// True for the letters of the list above.
bool IsAxisName(std::string_view name);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_SHAPE_H_
