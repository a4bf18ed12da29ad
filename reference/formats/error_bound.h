// How far a stored row may be from the row that was stored: for every element a bound on
// |x - round trip of x|, computed from x and the format before anything is encoded, as a sum of
// named terms. It serves the round trip of the codec cases and, as dk and dv, attention judged
// against the original K and V. Derivation and measurements: formats.md, sections A, C and D.
//
// Affine, with s0, s, k, t, c of the formula in formats.md, u and eta of the row type T:
//   "row rounding"        |x - rnd_T(x)|, where x comes in a type that T does not hold, and half
//   the
//                         spacing of the type in which the row is read, where that does not hold it
//   "code"                s max(1/2, t - n, -t)     nearest code, or clamping at an end
//   "scale rounding"      c s u + c eta             the stored scale, multiplied by the code
//   "product rounding"    c s u + eta               only with two roundings
//   "sum rounding"        u |y| + eta               not for the exact value
//   "encoder arithmetic"  3 u32 s |t| + 5 u32 c s + 2^-149
// Blocks of ggml, with d the step in f32 and dD = max(2^-11 |d|, 2^-25) the rounding of f16:
//   "row rounding"        as above, T being f32
//   "code"                |d| max(1/2, distance to the nearest integer that is a code)
//   "scale rounding"      min(largest code, |x| / |d| + 1/2) dD
//   "encoder arithmetic"  (a |x| + b |d|) u32 (1 + dD / |d|), a and b by family
// Codes of 8 bits with a scale s, t = |x| / s:
//   "row rounding"        as above
//   "code"                s max(half the gap of codes at t, t - largest)
//   "product rounding"    of f32 and of T, by decode
//   "encoder arithmetic"  (2 r + 1) u32 |x|, r = 1 or 2 by the writer, and of integers the added
//   half
// Nibbles with a zero point: "code" and "encoder arithmetic" likewise,
//   "scale rounding"      |c - z| times the 4 bits that the stored scale has lost
// Plain:
//   "format rounding"     half the spacing of the format at x
//   "saturation"          |x| - largest finite value, beyond it and where the profile saturates
//   "row rounding"        half the spacing of the row's type, where it does not hold the format

#ifndef REFERENCE_FORMATS_ERROR_BOUND_H_
#define REFERENCE_FORMATS_ERROR_BOUND_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"

namespace kvcheck {

std::vector<std::string> BoundTerms(const KvFormat& format);

// Bound for one row under the question: as the overloads below, with their arguments by name.
RowBound RoundTripBound(const KvFormat& format, const RoundTripQuestion& question,
                        std::span<const double> x);
// Bound for one row, given in x_dtype.
// decode: how the stored value is read. kExact means the real number c S + B itself.
// read: the type in which the row is then written out, which rounds the real number, or a value of
// the row type T that it does not hold; nullopt: nothing more is rounded.
RowBound RoundTripBound(const KvFormat& format, const Profile& profile, DecodeRounding decode,
                        DType x_dtype, std::optional<DType> read, std::span<const double> x);
// The same with plain rows read in x_dtype and affine ones in the row type. A row that is written
// out is rounded at least once.
RowBound RoundTripBound(const KvFormat& format, const Profile& profile, DecodeRounding decode,
                        DType x_dtype, std::span<const double> x);

// dk or dv of attention against the originals: |x - stored value under the profile|.
std::vector<double> OriginalErrorBound(const KvFormat& format, const Profile& profile,
                                       DType x_dtype, std::span<const double> x);

// What a kernel over the codes of x adds up in place of each element: a bound of |c S| + |B| of its
// code, before anything is encoded; of affine formats B is the edge of the group or 0, and
// c S = stored value - B. Precondition: the format has a grid.
// Infinite where RoundTripBound has no bound.
std::vector<double> PartsBound(const KvFormat& format, const Profile& profile, DType x_dtype,
                               std::span<const double> x);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_ERROR_BOUND_H_
