// Integer codes of groups, whatever a group runs along: the tokens of a channel
// (channel_arithmetic.cc) or the channels of a token (affine_arithmetic.cc, encode=kivi). Here are
// the writer that counts codes from the least value of a group, and the bound of one element whose
// scale is known.
//
// Source: KIVI's kernels and optimum-quanto 0.2.7, MaxOptimizer; formats.md, sections A and G.

#ifndef REFERENCE_FORMATS_GROUP_CODES_H_
#define REFERENCE_FORMATS_GROUP_CODES_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "reference/formats/format_arithmetic.h"
#include "reference/spec/dtype.h"

namespace kvcheck {

// What is known of the values of a group before they are coded.
struct ValueRange {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  bool is_finite = true;
  void Add(double x) {
    if (x < least) least = x;
    if (x > most) most = x;
    is_finite = is_finite && std::isfinite(x);
  }
};

// As stored. Not defined where a value is no finite number, or the scale is none: NaN and infinity.
struct MinimumGroup {
  double scale = 0;
  double zero = 0;
  bool is_defined = true;
};

// Definition, n = 2^bits - 1, every step rounded to `type`, which the values are of:
//   scale (most - least) / n;  zero least, a zero without its sign
//   code  clamp(rint((x - zero) / scale), 0, n); 0 where the scale is 0
//   value code scale + zero
MinimumGroup MinimumGroupOf(int bits, DType type, const ValueRange& range);
uint8_t MinimumCode(int bits, DType type, const MinimumGroup& group, double x);
// A whole group. Shapes: x (group), codes (group).
MinimumGroup EncodeFromMinimum(int bits, DType type, std::span<const double> x,
                               std::span<uint8_t> codes);
// How far the position that is rounded to a code may be from t = (x - zero) / scale: a rounded
// difference, whose subnormals are exact, and a rounded quotient.
double MinimumPositionError(DType type, double t);

// Where an element stands among the codes of its group as they are read.
struct CodePlace {
  int bits = 4;
  DType type = DType::kFloat32;  // of rows and of scales
  double scale = 0;              // as stored
  // Whether a code means code scale + zero; if not, (code - zero) scale.
  bool has_offset = true;
  double above = 0;           // of a scale of 0: x - zero, which is what is lost
  double t = 0;               // of another scale: the position
  double position_error = 0;  // of the position that the writer rounds, in codes
};

enum CodeTerm : size_t { kRowTerm, kCodeTerm, kProductTerm, kSumTerm, kEncoderTerm, kCodeTerms };

// total: their sum, infinite where something may overflow; wrong_code: as in RowBound.
struct CodeBound {
  std::array<double, kCodeTerms> terms = {};
  double total = 0;
  double wrong_code = 0;
  bool overflows = false;
};
// The bound of formats.md, section G. x: of the row type; given: before it was rounded to that.
CodeBound BoundOfCode(const RoundTripQuestion& question, const CodePlace& place, double x,
                      double given);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_GROUP_CODES_H_
