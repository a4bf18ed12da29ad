// What failing values look like instead: the expected values of another head, row, token or
// channel, zeros, the opposite sign, a multiple. Works on a window of the output around its worst
// element, of at most kWindowElements elements, so it costs the same for outputs of any size.

#ifndef REFERENCE_JUDGE_SHIFTS_H_
#define REFERENCE_JUDGE_SHIFTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reference/spec/shape.h"

namespace kvcheck {

inline constexpr int64_t kWindowElements = int64_t{1} << 18;

// A box of an output. Values are row-major over the box.
struct Window {
  Shape shape;                  // of the whole output
  std::vector<int64_t> first;   // per axis
  std::vector<int64_t> extent;  // per axis
  std::vector<double> expected;
  std::vector<double> got;
  std::vector<double> tolerance;
  std::vector<uint8_t> judged;
  std::vector<uint8_t> failed;

  int64_t Size() const;
  // Index in the box of an element of the output, -1 when outside.
  int64_t IndexOf(int64_t element) const;
};

// The box around an element: every axis whole, then the longest halved until the box is small
// enough, so that short axes (batch, heads) stay whole. Values are sized and zero.
Window MakeWindow(const Shape& shape, int64_t around, int64_t most_elements = kWindowElements);

// Sentences, most telling first. A comparison is reported when it explains more than half of the
// failing elements it was tried on, that is more than everything else together.
std::vector<std::string> DescribeLikeness(const Window& window);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_SHIFTS_H_
