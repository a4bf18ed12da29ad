// Codes of 8 bits of reference/spec/scaled_format.h as numbers: fp8 of four types and signed
// integers. Source: formats.md, section D; OCP fp8 specification, ml_dtypes for the fnuz types.

#ifndef REFERENCE_FORMATS_SCALED_CODES_H_
#define REFERENCE_FORMATS_SCALED_CODES_H_

#include <cstdint>

#include "reference/spec/profile.h"
#include "reference/spec/scaled_format.h"

namespace kvcheck {

// 448, 57344, 240, 57344, 127.
double LargestOf(ScaledCode code);
double ValueOf(ScaledCode code, uint8_t bits);

// Half the distance between the neighbours around a finite t.
double HalfGap(ScaledCode code, double t);
// t to the nearest code's value, ties to even, as if codes went on past the largest.
double NearestValue(ScaledCode code, double t);

// The code nearest to q, ties to even; beyond the largest by the rule. NaN: fp8 has codes for it,
// with its sign where the type has signs of NaN; integers give 0.
uint8_t NearestCode(ScaledCode code, float q, Fp8Overflow overflow);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_SCALED_CODES_H_
