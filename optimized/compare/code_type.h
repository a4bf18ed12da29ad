// How the stored codes of each type are laid out, for the first pass: which bits are magnitude,
// where NaN and infinity begin, what a code is worth. Its constants are written a second time here,
// apart from the reference's, and compared with them by tests/optimized/compare/code_type_test.cc.

#ifndef OPTIMIZED_COMPARE_CODE_TYPE_H_
#define OPTIMIZED_COMPARE_CODE_TYPE_H_

#include <cstdint>

#include "reference/spec/dtype.h"

namespace kvcheck {

struct CodeType {
  int bytes;
  bool is_float;
  bool is_signed_integer;
  int mantissa_bits;   // of floats, stored
  int bias;            // of floats
  uint64_t sign;       // of floats: the sign bit, 0 without one
  uint64_t magnitude;  // the bits that are not sign; of integers all
  uint64_t largest;    // largest finite magnitude; above it: infinity, NaN, or no code
  uint64_t infinity;   // its magnitude, 0 without one
  bool has_nan;        // above largest and not infinity: NaN; without NaN: no code
};

const CodeType& CodeTypeOf(DType dtype);

// The value of a code: exact, but for integers of 64 bits beyond 2^53 (nearest even). NaN for what
// is NaN or no code.
double ValueOf(DType dtype, uint64_t code);

// Little endian, at any alignment.
uint64_t LoadCode(int bytes, const std::byte* from);

}  // namespace kvcheck

#endif  // OPTIMIZED_COMPARE_CODE_TYPE_H_
