// Rows to be stored, generated from a regime and a seed: the families of data on which codecs
// differ from each other and from their bounds (reference/formats/formats.md, "Check data").
//
// Every value is finite in the row's type: it is rounded to nearest even and saturated. A unit is
// 32 consecutive channels of a row, the smallest group of any format.
//
//   gauss         N(0, 1)
//   cauchy        ratio of two N(0, 1): a few values of 10^2..10^6 among ordinary ones
//   group_scales  N(0, 1) 2^e, e in -14..10 per unit
//   constant      one N(0, 1) value per unit
//   offset        N(0, 1) plus one offset in [-50, 50] per row
//   all_positive  |N(0, 1)|
//   all_negative  -|N(0, 1)|
//   tiny          N(0, 1) 2^e, e in -30..-16 per unit: around the affine encoder's floor of 1e-7
//   huge          N(0, 1) 2^e per unit, e in the six binades below the largest finite value / 2^3
//   ties          k or k/64 per unit, k an integer in -256..256: many exact ties of the encoders
//   sparse        N(0, 1), 95 % zeros of either sign
//   subnormal     subnormal numbers of the type
//   log_uniform   +-2^e (1 + f), e uniform over the middle half of the type's exponents
//   mixed         each unit from one of the regimes above

#ifndef REFERENCE_DATA_ROW_REGIME_H_
#define REFERENCE_DATA_ROW_REGIME_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "reference/spec/dtype.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

std::span<const std::string_view> RowRegimes();

// Rows (rows, dim) of a float type. Row r depends on (regime, seed, r) alone, so more rows only
// append.
// Errors: kIllegalCase for an unknown regime, listing the regimes, and for an unsigned float type.
Tensor GenerateRows(std::string_view regime, uint64_t seed, DType dtype, int64_t rows, int64_t dim);

// Errors: kIllegalCase that lists the known regimes of this kind of data.
[[noreturn]] void ThrowUnknownRegime(std::string_view regime, std::string_view kind,
                                     std::span<const std::string_view> known);

}  // namespace kvcheck

#endif  // REFERENCE_DATA_ROW_REGIME_H_
