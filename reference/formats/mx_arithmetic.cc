// MX blocks as their writers make them (formats.md, section B): which power of two a block is
// divided by, and how its quotients are rounded to elements.

#include <algorithm>
#include <cmath>

#include "reference/formats/block_floats.h"
#include "reference/numerics/convert.h"
#include "reference/spec/mx_format.h"

namespace kvcheck {
namespace {

constexpr int kBias = 127;

double Largest(DType element) { return FloatTypeOf(element).largest_finite; }

bool IsMlx(const Profile& profile) {
  return profile.mx_encode == MxEncoder::kMlx || profile.mx_encode == MxEncoder::kMlx031;
}

// log2 as f32 has it. Powers of two are exact.
double Log2(double q) {
  int exponent = 0;
  return std::frexp(q, &exponent) == 0.5 ? exponent - 1 : ToFloat32(std::log2(q));
}

// The exponent of the scale of a block of largest magnitude a.
int ExponentOf(const BlockFloats& format, MxEncoder encoder, double a) {
  const double largest = Largest(format.element);
  switch (encoder) {
    case MxEncoder::kOcp:
      return a == 0 ? -kBias : std::max(std::ilogb(a) - std::ilogb(largest), -kBias);
    case MxEncoder::kUp: {
      // The least power of two that is not below the quotient.
      int exponent = -kBias;
      const double q = ToFloat32(a / largest);
      if (q != 0 && std::frexp(q, &exponent) == 0.5) --exponent;
      return std::clamp(exponent, -kBias, kBias);
    }
    case MxEncoder::kSglang: {
      // In f32 throughout: a fused kernel rounds to the type of rows only what it stores.
      const double q = std::max(ToFloat32(a / largest), ToFloat32(1e-10));
      return static_cast<int>(std::ceil(Log2(q)));
    }
    case MxEncoder::kMlx:
    case MxEncoder::kMlx031: {
      const double q = RoundTo(format.row, a / largest);
      if (q == 0) return 0;
      return static_cast<int>(encoder == MxEncoder::kMlx
                                  ? std::ceil(Log2(q))
                                  : std::nearbyint(RoundTo(format.row, Log2(q))));
    }
  }
  return 0;
}

std::vector<BlockScale> Scales(const BlockFloats& format, const Profile& profile,
                               std::span<const double> x) {
  double a = 0;
  for (const double value : x) a = std::max(a, std::fabs(value));
  const int exponent = ExponentOf(format, profile.mx_encode, a);
  BlockScale scale;
  scale.byte = static_cast<uint8_t>(exponent + kBias);  // of MLX modulo 256
  scale.factor = std::ldexp(1.0, exponent);
  scale.is_lost = exponent < -kBias;
  return {scale};
}

double Position(const BlockFloats& format, const Profile& profile, const BlockScale& scale,
                double x) {
  const double quotient = x / scale.factor;  // exact
  if (IsMlx(profile)) return RoundTo(format.row, quotient);
  return profile.mx_encode == MxEncoder::kSglang ? ToFloat32(quotient) : quotient;
}

// Divisions by powers of two are exact, but below the smallest normal number.
double PositionError(const BlockFloats& format, const Profile& profile, double t) {
  if (profile.mx_encode == MxEncoder::kOcp || profile.mx_encode == MxEncoder::kUp) return 0;
  const DType type = IsMlx(profile) ? format.row : DType::kFloat32;
  return t < FloatTypeOf(type).smallest_normal ? HalfSmallestSubnormal(type) : 0;
}

uint8_t Code(const BlockFloats& format, const Profile& profile, double position) {
  if (format.element != DType::kFloat4E2M1FN) {
    return static_cast<uint8_t>(
        Encode(format.element, position, {.overflow = Overflow::kSaturate}));
  }
  return E2M1Code(IsMlx(profile)                            ? E2M1Rule::kDown
                  : profile.mx_encode == MxEncoder::kSglang ? E2M1Rule::kUp
                                                            : E2M1Rule::kEven,
                  position);
}

void AddWriters(const Profile& profile, std::vector<ProfileChange>* changes) {
  AddChanges(profile, CodecChoice::kMxEncode, changes);
}

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const MxFormat& format) {
  const auto none = [](const Profile&) { return 0.0; };
  return MakeBlockFloatArithmetic(
      {.block = static_cast<size_t>(format.block),
       .element = format.element,
       .scale = DType::kFloat8E8M0FNU,
       .row = format.row_dtype,
       .global_scale = 1,
       .scales = Scales,
       .position = Position,
       .position_error = PositionError,
       .position_freedom = none,
       .code = Code,
       .reads_last_power = IsMlx,
       .zeros_are_free =
           [](const Profile& profile) { return profile.mx_encode == MxEncoder::kOcp; },
       .add_writers = AddWriters,
       .orders = nullptr},
      true);
}

}  // namespace kvcheck
