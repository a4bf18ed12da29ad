// The round-trip bound of affine groups; its terms and derivation: error_bound.h and formats.md,
// section A.

#ifndef REFERENCE_FORMATS_AFFINE_BOUND_H_
#define REFERENCE_FORMATS_AFFINE_BOUND_H_

#include <span>
#include <string>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/spec/affine_format.h"

namespace kvcheck {

std::vector<std::string> AffineTerms();
void BoundAffineRow(const AffineFormat& format, const RoundTripQuestion& question,
                    std::span<const double> x, RowBound* bound);
// FormatArithmetic::Parts.
std::vector<double> AffineParts(const AffineFormat& format, const Profile& profile,
                                std::span<const double> x, std::vector<double> total);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_AFFINE_BOUND_H_
