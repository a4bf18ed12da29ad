#include "reference/spec/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace kvcheck {

Shape Shape::Unnamed(const std::vector<int64_t>& extents) {
  Shape shape;
  for (int64_t extent : extents) shape.axes.push_back({"", extent});
  return shape;
}

int64_t Shape::ElementCount() const {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.extent;
  return count;
}

int64_t Shape::RowLength() const { return axes.empty() ? 1 : axes.back().extent; }

int64_t Shape::RowCount() const {
  const int64_t length = RowLength();
  return length == 0 ? 0 : ElementCount() / length;
}

bool Shape::SameExtents(const Shape& other) const {
  return std::equal(axes.begin(), axes.end(), other.axes.begin(), other.axes.end(),
                    [](const Axis& a, const Axis& b) { return a.extent == b.extent; });
}

std::vector<int64_t> Shape::Coordinates(int64_t element) const {
  std::vector<int64_t> coordinates(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    coordinates[i] = element % axes[i].extent;
    element /= axes[i].extent;
  }
  return coordinates;
}

namespace {

bool AllNamed(const Shape& shape) {
  return std::all_of(shape.axes.begin(), shape.axes.end(),
                     [](const Axis& axis) { return !axis.name.empty(); });
}

std::string Lower(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace

std::string ToString(const Shape& shape) {
  if (shape.axes.empty()) return "scalar";
  std::vector<std::string> parts;
  const bool named = AllNamed(shape);
  for (const Axis& axis : shape.axes) {
    parts.push_back(named ? fmt::format("{}={}", axis.name, axis.extent)
                          : fmt::format("{}", axis.extent));
    if (axis.is_slice) {
      parts.back() += fmt::format("({}:{})", axis.first, axis.first + axis.extent);
    }
  }
  return fmt::format("{}", fmt::join(parts, named ? " " : "x"));
}

std::string ElementName(const Shape& shape, int64_t element) {
  const std::vector<int64_t> coordinates = shape.Coordinates(element);
  std::vector<std::string> parts;
  const bool named = AllNamed(shape);
  for (size_t i = 0; i < coordinates.size(); ++i) {
    const int64_t coordinate = shape.axes[i].first + coordinates[i];
    parts.push_back(named ? fmt::format("{}={}", Lower(shape.axes[i].name), coordinate)
                          : fmt::format("{}", coordinate));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

bool IsAxisName(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kNames = {"B",  "Hq", "Hkv", "L", "T",
                                                             "Dk", "Dv", "G",   "W"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace kvcheck
