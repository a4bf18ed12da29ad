// Conversions between double and every storage type, by integer arithmetic on bit patterns and with
// one rounding: what a stored code means, and which code a value becomes. Sources: IEEE 754-2019
// (binary16/32/64, attributes of rounding), the OCP specifications of fp8 and of microscaling
// formats (e4m3, e5m2, e2m1, e8m0), and ml_dtypes for what these leave open (overflow of e4m3fn,
// zero in e8m0fnu). The compiler's and libraries' half types are not used: several of them
// truncate.

#ifndef REFERENCE_NUMERICS_CONVERT_H_
#define REFERENCE_NUMERICS_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "reference/numerics/fast_round.h"
#include "reference/spec/dtype.h"
#include "reference/spec/rounding.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// True when the rule has a meaning for the type: kInfinity needs infinities, kNaN needs NaN, and an
// integer type takes only the default rule.
bool IsDefined(DType dtype, const ConvertRule& rule);

// The code of x. The single rounding is from the double itself, never by way of f32.
//
// Definition: the magnitude is rounded to the grid of the type (its subnormal grid below the normal
// range) by rule.rounding; what exceeds the largest finite value follows rule.overflow.
// - Signed zeros and signs of underflowed results are kept.
// - NaN: quiet, sign kept. f64, f32, f16 and bf16 keep the leading payload bits that fit; e4m3fn
//   and e5m2 have one NaN per sign, 7f/ff and 7e/fe; e2m1fn has none and gives code 0 (+0).
// - e8m0fnu: positive values below 2^-127 become 2^-127 in every direction. Zero and negative
//   values have no code near them: NaN, or under the two saturating rules 2^-127 (code 0). (As
//   ml_dtypes 0.6.0, but for f32 values between 2^-127 and 1.5 * 2^-127, which it rounds up.)
// - Integer types and bool: x must be a value of the type.
// Errors: kIllegalCase when !IsDefined(dtype, rule), or x is not a value of an integer type.
uint64_t Encode(DType dtype, double x, const ConvertRule& rule = {});

// The value of a code, exact for every type but int64 and uint64, whose values beyond 2^53 are
// rounded to nearest even. NaN is quiet, with its sign and payload. Only the low bits of `bits`
// that the type has are read (four of e2m1fn, all eight of bool: nonzero is 1).
double Decode(DType dtype, uint64_t bits);

// Decode(dtype, Encode(dtype, x, rule)): x as the type holds it.
double RoundTo(DType dtype, double x, const ConvertRule& rule = {});
// RoundTo for every value, in place; f32, bf16 and f16 without overflow rules of their own run
// vectorised (and leave the payload of a NaN unspecified).
void RoundAll(std::span<double> values, DType dtype, const ConvertRule& rule = {});

// Number of bits of a code: 4 for e2m1fn, 8 per byte for the others.
int CodeBits(DType dtype);

// Elements [first, first + out.size()) of a tensor, decoded. The range must lie in the tensor.
// Errors: kIllegalCase for a byte that is no code of its type (e2m1fn above 0x0f, bool above 1).
void DecodeTo(const Tensor& tensor, int64_t first, std::span<double> out);

// The same of consecutive codes in memory, out.size() of them. Errors: as DecodeTo.
void DecodeBytes(const std::byte* from, DType dtype, std::span<double> out);

// Encodes values as consecutive little-endian codes; out holds values.size() * SizeInBytes(dtype)
// bytes. Errors: as Encode.
void EncodeFrom(std::span<const double> values, DType dtype, std::byte* out,
                const ConvertRule& rule = {});

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_CONVERT_H_
