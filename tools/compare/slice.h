// A part of a tensor by coordinates: --slice b=0,h=3,t=0:512. The part is presented as a tensor of
// its own, whose elements are still named by their coordinates in the whole.

#ifndef TOOLS_COMPARE_SLICE_H_
#define TOOLS_COMPARE_SLICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/shape.h"
#include "tools/compare/tensor_view.h"

namespace kvcheck {

// Coordinates [first, last] of one axis.
struct AxisSlice {
  std::string axis;  // as written: a name, or the number of an axis, from 0
  int64_t first = 0;
  int64_t last = 0;
  std::string text;  // "t=0:512"
  bool operator==(const AxisSlice&) const = default;
};

// "AXIS=I" or "AXIS=FIRST:END" (END excluded), joined by commas. Errors: kUsage.
std::vector<AxisSlice> ParseSlice(const std::string& text);

// The shape of the part. An axis is named by its label in upper or lower case, by the beginning of
// one label alone ("h" where there is Hq and no Hkv), or by its number.
// Errors: kUsage for an axis that the shape does not have or that is given twice, and for
// coordinates outside of it. where: the tensor, for messages.
Shape SliceShape(const Shape& whole, const std::vector<AxisSlice>& slices,
                 const std::string& where);

// The part of `whole` that has this shape, which SliceShape made.
class SlicedTensor : public TensorView {
 public:
  // whole must outlive this.
  SlicedTensor(const TensorView& whole, const Shape& part);
  // Holds at most kReadBytes of the whole beside `out`.
  void Read(const std::string& name, int64_t first_element,
            std::span<std::byte> out) const override;

 private:
  // Index in the whole of an element of the part.
  int64_t InWhole(int64_t element) const;

  const TensorView& whole_;
  int64_t run_ = 1;  // elements of the part that lie one after the other in the whole, at least
};

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_SLICE_H_
