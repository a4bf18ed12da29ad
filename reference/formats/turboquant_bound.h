// What the families of turboquant share of their bounds and of what encoding leaves open: a group
// in double beside the f32 of its writers. Derivations: formats.md, section E.

#ifndef REFERENCE_FORMATS_TURBOQUANT_BOUND_H_
#define REFERENCE_FORMATS_TURBOQUANT_BOUND_H_

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/formats/turboquant.h"

namespace kvcheck {

inline constexpr double kFloatUnit = 0x1p-24;
inline constexpr double kTurboquantNoBound = std::numeric_limits<double>::infinity();
// Formulas are evaluated in double, with fewer than 2^11 operations whose intermediate results stay
// below 2^5 norms: their own rounding is below 2^-36 norms.
inline constexpr double kTurboquantRounding = 0x1p-36;

std::vector<float> RoundedFloats(DType type, std::span<const double> x);
double AsHalf(double value);
// Whether x is finite and its norm a finite f16.
bool HasHalfNorm(std::span<const float> x);

// A group of finite values in double, as exact as the bound needs it.
struct ExactTurboquant {
  double norm = 0;
  // Relative: d squares and their sum, in f32 and any order, then the root and what it divides.
  double norm_error = 0;
  std::vector<double> unit;  // x over the norm
  std::vector<double> y;     // rotated
};
// The norm and its error alone.
ExactTurboquant EvaluateNorm(std::span<const float> x);
ExactTurboquant EvaluateTurboquant(const TurboquantGroup& group, std::span<const float> x);
// Whether arithmetic of any order computes coordinates that are 0 as 0: there is one element, or
// there are two of one magnitude.
bool ZerosAreExact(std::span<const float> x);

// A coordinate so near to a threshold that f32 may give it the code of either side.
struct OpenCode {
  size_t coordinate = 0;
  double gap = 0;    // between the two centroids
  double error = 0;  // of y
};
// The codes of the real y.
struct ExactCodes {
  std::vector<double> centroids;  // per coordinate
  double sum = 0, square = 0;     // of their magnitudes, of their squares
  std::vector<OpenCode> open;
  double Moved() const {
    double moved = 0;
    for (const OpenCode& code : open) moved += code.gap;
    return moved;
  }
};
// zeros_are_exact: a coordinate of 0 on the threshold 0 is not open.
ExactCodes CodesOf(const TurboquantGroup& group, const ExactTurboquant& exact,
                   bool zeros_are_exact = false);

// The same of codes that are known.
ExactCodes CodesAs(const TurboquantGroup& group, std::span<const uint8_t> codes);

// Of a coordinate within the declared band of a threshold, the code of its other side.
struct OtherCode {
  size_t coordinate = 0;
  uint8_t code = 0;
};
// codes: those of x.
std::vector<OtherCode> OtherCodes(const TurboquantGroup& group, std::span<const float> x,
                                  const ExactTurboquant& exact, std::span<const uint8_t> codes);

// Whether there is no bound, as where values are not finite or the norm may be no finite f16; the
// group's elements are then marked.
bool MarkWithoutBound(std::span<const float> x, const ExactTurboquant& exact, size_t first,
                      RowBound* bound);

// Elements [first, first + count) of a tile: whatever they are.
void AddMeaningless(size_t first, size_t count, ExpectedTile* tile);
// The f16 from lowest to highest beside the expected one.
void AddHalfAlternatives(double lowest, double highest, CodecReason reason, size_t element,
                         ExpectedTile* tile);
// The f16 next to the stored norm, where one summed in f32 may round to it.
void AddNormAlternatives(const ExactTurboquant& exact, size_t element, ExpectedTile* tile);
// Words from first_word on with the other code in each place where either is right, in every
// combination of up to four such places; where there are more of them in a word their bits are
// free.
void AddCodeAlternatives(const TurboquantGroup& group, int bits, std::span<const float> x,
                         const ExactTurboquant& exact, size_t first_word, ExpectedTile* tile);

// Element i of a bound: its terms, of which the first is of the row's rounding, and the roundings
// to the type in which the value is read.
void AddTurboquantElement(const RoundTripQuestion& question, DType row_type, double given,
                          std::span<double> terms, size_t i, RowBound* bound);
// Of a value that two decoders give within `of_values` of each other, in the row type.
double TurboquantDecodeBound(DType row_type, double y, double of_values);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_TURBOQUANT_BOUND_H_
