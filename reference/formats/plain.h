// Plain storage types: f64, f32, f16, bf16 and the two fp8 types with scale 1. A row is stored by
// rounding each element once, to nearest even, and is given back in the type it came in (a second
// rounding where that type does not hold the stored values). Infinity and NaN keep their meaning
// wherever the type can say it. Source: formats.md, section D, for fp8.

#ifndef REFERENCE_FORMATS_PLAIN_H_
#define REFERENCE_FORMATS_PLAIN_H_

#include "reference/spec/dtype.h"
#include "reference/spec/profile.h"
#include "reference/spec/rounding.h"

namespace kvcheck {

// How a value becomes a code of the type under a profile: the profile's overflow rule for fp8, IEEE
// overflow to infinity for the others.
ConvertRule StoreRule(DType dtype, const Profile& profile);

// x as a plain format gives it back: stored in `stored`, read in `read`.
double PlainRoundTrip(DType stored, DType read, const Profile& profile, double x);

// Whether every value of `inner` is a value of `outer`.
bool Holds(DType outer, DType inner);

// Half the distance between the neighbours in dtype around a finite x: the largest error of
// rounding x to nearest, for |x| below the overflow threshold.
// Definition: 2^(max(floor(log2 |x|), emin) - mantissa_bits - 1).
double HalfSpacing(DType dtype, double x);

// The smallest magnitude that rounds to nearest even past the largest finite value: 65520 for f16.
// e4m3fn ends inside a binade: its threshold is 464, and 464 itself still rounds to 448.
double OverflowThreshold(DType dtype);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_PLAIN_H_
