// A range of elements, numbered in row-major order, as boxes: what HDF5 can select.

#ifndef GOLDEN_ELEMENT_BOXES_H_
#define GOLDEN_ELEMENT_BOXES_H_

#include <hdf5.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "reference/spec/shape.h"

namespace kvcheck {

// Splits elements [first, last), in row-major order, into boxes in that order, and calls
// box(start, count) for each: single indices on the leading axes, a range on one, whole axes
// behind.
class ElementBoxes {
 public:
  using Box = std::function<void(const std::vector<hsize_t>&, const std::vector<hsize_t>&)>;

  // Precondition: at least one axis, no extent of 0.
  ElementBoxes(const Shape& shape, Box box)
      : shape_(shape),
        box_(std::move(box)),
        start_(shape.axes.size()),
        count_(shape.axes.size()),
        below_(shape.axes.size(), 1) {
    for (size_t i = below_.size() - 1; i-- > 0;) {
      below_[i] = below_[i + 1] * shape.axes[i + 1].extent;
    }
  }

  void Split(int64_t first, int64_t last) { Split(0, first, last); }

 private:
  void Split(size_t axis, int64_t first, int64_t last) {
    if (first >= last) return;
    const int64_t below = below_[axis];  // elements of one index of this axis: 1 for the last
    const int64_t head = first / below;
    const int64_t whole_from = (first + below - 1) / below;
    const int64_t whole_to = last / below;
    if (whole_from > whole_to) return Part(axis, head, first, last);  // inside one index
    if (first < whole_from * below) Part(axis, head, first, whole_from * below);
    if (whole_from < whole_to) Emit(axis, whole_from, whole_to - whole_from);
    if (whole_to * below < last) Part(axis, whole_to, whole_to * below, last);
  }

  void Part(size_t axis, int64_t index, int64_t first, int64_t last) {
    start_[axis] = static_cast<hsize_t>(index);
    count_[axis] = 1;
    Split(axis + 1, first - index * below_[axis], last - index * below_[axis]);
  }

  void Emit(size_t axis, int64_t from, int64_t count) {
    start_[axis] = static_cast<hsize_t>(from);
    count_[axis] = static_cast<hsize_t>(count);
    for (size_t i = axis + 1; i < start_.size(); ++i) {
      start_[i] = 0;
      count_[i] = static_cast<hsize_t>(shape_.axes[i].extent);
    }
    box_(start_, count_);
  }

  const Shape& shape_;
  Box box_;
  std::vector<hsize_t> start_, count_;
  std::vector<int64_t> below_;
};

}  // namespace kvcheck

#endif  // GOLDEN_ELEMENT_BOXES_H_
