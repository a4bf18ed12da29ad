// Double-double: an unevaluated sum hi + lo of two doubles with |lo| <= ulp(hi) / 2, about 106 bits
// of significand. It is the middle step of the precision ladder (double, double-double, 50 and 100
// decimal digits) and stores what a golden file keeps as `expected` and `expected_lo`.
//
// The type is a plain aggregate without member functions, and all arithmetic (double_double-inl.h)
// has internal linkage, so this header may be included by translation units that are compiled for
// different instruction sets and linked together: no function emitted for one can be called by the
// other. Every operation is a fixed sequence of correctly rounded IEEE operations (std::fma among
// them), so results have the same bits on every machine, in scalar and in vector code.

#ifndef REFERENCE_NUMERICS_DOUBLE_DOUBLE_H_
#define REFERENCE_NUMERICS_DOUBLE_DOUBLE_H_

namespace kvcheck {

struct DoubleDouble {
  double hi;
  double lo;
};

// Bounds of the relative error of one operation, for finite operands and results. With u = 2^-53
// the proofs give 3 u^2 for a sum (also under cancellation), 5 u^2 for a product and 15 u^2 for a
// quotient; the next power of two absorbs their terms in u^3.
// Source: Joldes, Muller, Popescu, "Tight and rigorous error bounds for basic building blocks of
// double-word arithmetic", ACM TOMS 44(2), 2017 (AccurateDWPlusDW, DWTimesDW3, DWDivDW2).
inline constexpr double kDoubleDoubleAddError = 0x1p-104;
inline constexpr double kDoubleDoubleMulError = 0x1p-103;
inline constexpr double kDoubleDoubleDivError = 0x1p-102;

// Where partial results underflow an absolute error comes on top: none for a sum; for a product at
// most kDoubleDoubleFloor (the error of the leading product, the two cross products and the last
// product, 2^-1075 each); for a quotient kDoubleDoubleFloor * (1 + 1 / |divisor|), since the
// remainder is found by a product and divided again.
inline constexpr double kDoubleDoubleFloor = 0x1p-1073;

}  // namespace kvcheck

#include "reference/numerics/double_double-inl.h"

#endif  // REFERENCE_NUMERICS_DOUBLE_DOUBLE_H_
