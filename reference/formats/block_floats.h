// What formats of small floats in blocks with a scale (mxfp4, mxfp8, nvfp4) have in common: rows
// block by block, values element * scale * global scale, which double holds, and the bound of a
// block's round trip. A family adds how its writers find a scale and a position among the elements.

#ifndef REFERENCE_FORMATS_BLOCK_FLOATS_H_
#define REFERENCE_FORMATS_BLOCK_FLOATS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reference/formats/format_arithmetic.h"

namespace kvcheck {

// Where a code of e2m1 goes at a tie, and what becomes of a value that rounds to zero.
enum class E2M1Rule {
  kEven,  // to the even code; zero keeps the sign (OCP MX 1.0, cvt.rn.satfinite.e2m1x2)
  kDown,  // to the smaller magnitude; zero is +0; the first element whose distance in f32 is least,
          // which is 6 for 6 <= w <= 2^25 and 0 beyond 2^27 (MLX on a CPU)
  kUp     // to the larger magnitude; a negative value keeps its sign, -0 does not (SGLang)
};
// w of any size; beyond 6, 6 but for kDown; NaN has the code 0.
uint8_t E2M1Code(E2M1Rule rule, double w);

// The scale of a block as a writer has it.
struct BlockScale {
  uint8_t byte = 0;
  double factor = 1;     // what positions are computed with
  bool is_lost = false;  // the byte is that of another scale
};

// Blocks of `block` channels. Values given to functions are finite and of the row type.
struct BlockFloats {
  size_t block;
  DType element, scale, row;
  double global_scale = 1;
  // Of a block: the writer's scale; after it, those that its operations may give as well where they
  // are not specified to the last bit.
  std::vector<BlockScale> (*scales)(const BlockFloats& format, const Profile& profile,
                                    std::span<const double> x);
  // x in units of the scale, rounded as the writer does.
  double (*position)(const BlockFloats& format, const Profile& profile, const BlockScale& scale,
                     double x);
  // How far a position is from x / (scale * global scale) at most; t: that quotient's magnitude.
  double (*position_error)(const BlockFloats& format, const Profile& profile, double t);
  // Relative, how far the same operations may differ between machines.
  double (*position_freedom)(const Profile& profile);
  uint8_t (*code)(const BlockFloats& format, const Profile& profile, double position);
  // 2^128, as the reader of this profile reads the scale byte 255 of e8m0; null: it is NaN.
  bool (*reads_last_power)(const Profile& profile) = nullptr;
  // Whether a writer of this profile may set what has no value as it likes: signs of zeros, the
  // scale of a block of zeros.
  bool (*zeros_are_free)(const Profile& profile);
  // The other values of the profile's field of writers.
  void (*add_writers)(const Profile& profile, std::vector<ProfileChange>* changes);
  std::vector<PlaneOrder> (*orders)(int64_t head_dim) = nullptr;  // null: none
};

// leaves_decode: whether a value depends on the profile's `decode`.
std::unique_ptr<FormatArithmetic> MakeBlockFloatArithmetic(const BlockFloats& format,
                                                           bool leaves_decode);

// Of f32, in which writers compute.
double ToFloat32(double x);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_BLOCK_FLOATS_H_
