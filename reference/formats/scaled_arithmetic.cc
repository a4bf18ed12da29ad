// Codes of 8 bits with an f32 scale, one f32 operation at a time (formats.md, section D).
//
//            scale of a vector          position q       code
//   divide   max|x| / largest           x / s            clamped, nearest even
//   vllm     max|x| (1 / largest), at   x (1 / s)        clamped; integers trunc(q +- 1/2)
//            least 1e-6
//   vllm_truncate                                        integers trunc(q)
//   tensor   given                      x / s            nearest even, fp8_overflow
//
// A vector whose scale is 0 has the codes 0. vLLM's are Triton kernels: the division by a constant
// becomes a product, and 1 / s comes from an instruction that is off by one unit at most, which
// leaves some codes open.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/formats/plain.h"
#include "reference/formats/scaled_codes.h"
#include "reference/formats/vector_rows.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kU32 = 0x1p-24;
// As in ggml_blocks.cc: fewer than 2^6 operations in double on non-negative terms.
constexpr double kEvaluation = 1.0 + 0x1p-40;
constexpr float kLeastScaleOfVllm = 1e-6f;

enum ScaledTerm { kRow, kCode, kDecode, kEncoder, kScaledTerms };

bool IsFinite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
}

// NaN is skipped.
float LargestMagnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::fabs(value) > largest ? std::fabs(value) : largest;
  return largest;
}

float ScaleOf(const ScaledFormat& format, TokenEncoder encoder, std::span<const float> x) {
  if (!format.IsDynamic()) return format.scale;
  const auto largest_code = static_cast<float>(LargestOf(format.code));
  if (encoder == TokenEncoder::kDivide) return LargestMagnitude(x) / largest_code;
  const float of_one = 1.0f / largest_code;
  const float scale = LargestMagnitude(x) * of_one;
  return scale < kLeastScaleOfVllm ? kLeastScaleOfVllm : scale;
}

// By what an encoder divides, and what it multiplies with.
struct Divisor {
  float scale = 0;
  std::optional<float> reciprocal;
};

Divisor DivisorOf(const ScaledFormat& format, TokenEncoder encoder, float scale) {
  if (!format.IsDynamic() || encoder == TokenEncoder::kDivide) return {scale, std::nullopt};
  return {scale, 1.0f / scale};
}

// Where x stands among the codes.
float PositionOf(const Divisor& divisor, float x) {
  return divisor.reciprocal ? x * *divisor.reciprocal : x / divisor.scale;
}

uint8_t CodeOf(const ScaledFormat& format, const Profile& profile, float x,
               const Divisor& divisor) {
  const float q = PositionOf(divisor, x);
  if (!format.IsDynamic()) return NearestCode(format.code, q, profile.fp8_overflow);
  if (divisor.scale == 0 || std::isnan(q)) return 0;
  if (format.IsFp8()) return NearestCode(format.code, q, Fp8Overflow::kSaturate);
  float rounded = q;
  if (profile.token_encode == TokenEncoder::kVllm) rounded = q >= 0 ? q + 0.5f : q - 0.5f;
  if (profile.token_encode == TokenEncoder::kDivide) rounded = std::nearbyint(q);
  return static_cast<uint8_t>(static_cast<int>(std::clamp(rounded, -128.0f, 127.0f)));
}

class ScaledRows : public RowArithmetic {
 public:
  ScaledRows(const ScaledFormat& format, const Profile& profile)
      : format_(format), profile_(profile) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    const std::vector<float> row = RowInFloats(format_.row_type, x);
    const float scale = ScaleOf(format_, profile_.token_encode, row);
    const Divisor divisor = DivisorOf(format_, profile_.token_encode, scale);
    for (size_t i = 0; i < row.size(); ++i) {
      stored[0][i] = static_cast<std::byte>(CodeOf(format_, profile_, row[i], divisor));
    }
    if (format_.IsDynamic()) {
      const bool is_inline = format_.place == ScalePlace::kInline;
      std::memcpy(is_inline ? stored[0] + row.size() : stored[1], &scale, sizeof(scale));
    }
  }
  // A code has 4 or 8 significant bits, the scale 24.
  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    float scale = format_.scale;
    if (format_.IsDynamic()) {
      const bool is_inline = format_.place == ScalePlace::kInline;
      std::memcpy(&scale, is_inline ? stored[0] + hi.size() : stored[1], sizeof(scale));
    }
    for (size_t i = 0; i < hi.size(); ++i) {
      hi[i] = ValueOf(format_.code, std::to_integer<uint8_t>(stored[0][i])) *
              static_cast<double>(scale);
    }
    std::fill(lo.begin(), lo.end(), 0.0);
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    DecodeExact(stored, out, {});
    if (profile_.decode == DecodeRounding::kTwoRoundings) RoundAll(out, DType::kFloat32);
    RoundAll(out, format_.row_type);
  }

 private:
  ScaledFormat format_;
  Profile profile_;
};

class ScaledArithmetic : public FormatArithmetic {
 public:
  explicit ScaledArithmetic(const ScaledFormat& format) : format_(format) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t) const override {
    return std::make_unique<ScaledRows>(format_, profile);
  }

  std::vector<std::string> Terms() const override {
    return {"row rounding", "code", "product rounding", "encoder arithmetic"};
  }

  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const std::vector<float> row = RowInFloats(format_.row_type, x);
    const bool undefined = format_.IsDynamic() && !IsFinite(row);
    const float scale = ScaleOf(format_, question.profile.token_encode, row);
    for (size_t i = 0; i < row.size(); ++i) {
      if (undefined || !std::isfinite(row[i])) {
        bound->undefined[i] = undefined || !format_.IsFp8();
        bound->overflows[i] = true;
        bound->total[i] = kInfinity;
        continue;
      }
      BoundElement(question, row[i], scale, x[i], i, bound);
    }
  }

  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    if (format_.Leaves(CodecChoice::kFp8Overflow)) {
      AddChanges(profile, CodecChoice::kFp8Overflow, &changes);
    }
    if (format_.IsDynamic() && format_.IsFp8()) {
      AddChanges(profile, CodecChoice::kTokenEncode, &changes, {"vllm_truncate"});
    } else if (format_.IsDynamic()) {
      AddChanges(profile, CodecChoice::kTokenEncode, &changes);
    }
    AddChanges(profile, CodecChoice::kDecode, &changes, {"exact"});
    return changes;
  }

  std::vector<Profile> UndeclaredEncoders(const Profile& profile) const override {
    if (!format_.IsDynamic()) return {profile};
    std::vector<Profile> profiles = {profile, profile, profile};
    profiles[0].token_encode = TokenEncoder::kDivide;
    profiles[1].token_encode = TokenEncoder::kVllm;
    profiles[2].token_encode = TokenEncoder::kVllmTruncate;
    if (format_.IsFp8()) profiles.pop_back();
    return profiles;
  }

  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    if (!format_.IsDynamic()) return AddNanAlternatives(profile, x, &(*tiles)[0].alternatives);
    const bool is_inline = format_.place == ScalePlace::kInline;
    const size_t rows = is_inline ? ((*tiles)[0].value.size() - x.size()) / sizeof(float)
                                  : (*tiles)[1].value.size();
    const size_t dim = rows == 0 ? 0 : x.size() / rows;
    for (size_t r = 0; r < rows; ++r) {
      const std::vector<float> row = RowInFloats(format_.row_type, x.subspan(r * dim, dim));
      if (IsFinite(row)) {
        AddReciprocalAlternatives(profile, row, is_inline ? dim + sizeof(float) : dim, r,
                                  &(*tiles)[0].alternatives);
        continue;
      }
      ExpectNothing(r, rows, tiles);
    }
  }

  // Under a given scale an element stands alone: what is past the largest code, or of a row that is
  // not finite, is no distance but a rule.
  void SetStanding(const RoundTripQuestion& question, std::span<const double> x,
                   const RowBound& bound, size_t row, ExpectedTile* tile) const override {
    if (format_.IsDynamic() || !format_.IsFp8()) {
      FormatArithmetic::SetStanding(question, x, bound, row, tile);
      return;
    }
    Profile profile = question.profile;
    profile.decode = question.decode;
    ScaledRows rows(format_, profile);
    std::vector<std::byte> codes(x.size());
    const std::array<std::byte*, 2> planes = {codes.data(), nullptr};
    const std::array<const std::byte*, 2> planes_view = {codes.data(), nullptr};
    std::vector<double> values(x.size());
    rows.Encode(x, planes);
    if (question.decode == DecodeRounding::kExact) {
      rows.DecodeExact(planes_view, values, {});
    } else {
      rows.DecodeToRowType(planes_view, values);
    }
    if (question.read.has_value()) RoundAll(values, *question.read);
    for (size_t i = 0; i < x.size(); ++i) {
      if (!bound.overflows[i]) continue;
      const size_t at = row * x.size() + i;
      tile->value[at] = values[i];
      tile->bound[at] = 0;
      if (std::isnan(x[i]) && std::isfinite(values[i])) {
        tile->alternatives.push_back({.element = static_cast<int64_t>(at),
                                      .value = -values[i],
                                      .any = false,
                                      .reason = kNanSign});
      }
    }
  }

 private:
  // Codes under the reciprocals next to the nearest one. stride: elements from row to row.
  void AddReciprocalAlternatives(const Profile& profile, std::span<const float> row, size_t stride,
                                 size_t r, std::vector<Alternative>* alternatives) const {
    const float scale = ScaleOf(format_, profile.token_encode, row);
    const Divisor nearest = DivisorOf(format_, profile.token_encode, scale);
    if (!nearest.reciprocal) return;
    for (const float toward : {0.0f, std::numeric_limits<float>::infinity()}) {
      const Divisor other = {scale, std::nextafterf(*nearest.reciprocal, toward)};
      for (size_t i = 0; i < row.size(); ++i) {
        const uint8_t code = CodeOf(format_, profile, row[i], other);
        if (code == CodeOf(format_, profile, row[i], nearest)) continue;
        const bool is_signed = !format_.IsFp8() && format_.place == ScalePlace::kToken;
        alternatives->push_back({.element = static_cast<int64_t>(r * stride + i),
                                 .value = is_signed ? static_cast<double>(static_cast<int8_t>(code))
                                                    : static_cast<double>(code),
                                 .any = false,
                                 .reason = kReciprocalUnit});
      }
    }
  }

  // The code of NaN: its sign, of e5m2 also which of its codes.
  void AddNanAlternatives(const Profile& profile, std::span<const double> x,
                          std::vector<Alternative>* alternatives) const {
    for (size_t i = 0; i < x.size(); ++i) {
      if (!std::isnan(x[i])) continue;
      Alternative alternative = {.element = static_cast<int64_t>(i),
                                 .value = 0,
                                 .any = !format_.IsFp8(),
                                 .reason = format_.IsFp8() ? kNanSign : kNotFiniteBlock};
      if (format_.IsFp8()) {
        const bool has_nan = profile.fp8_overflow != Fp8Overflow::kSaturateAll;
        const bool fnuz =
            format_.code == ScaledCode::kE4M3FNUZ || format_.code == ScaledCode::kE5M2FNUZ;
        if (fnuz && has_nan) continue;
        alternative.free_bits = has_nan && format_.code == ScaledCode::kE5M2 ? 0x81 : 0x80;
      }
      alternatives->push_back(alternative);
    }
  }

  // How far the code's value may lie from the position q that the encoder found, where x stands at
  // t codes.
  double CodeError(TokenEncoder encoder, double t) const {
    const double past = t - LargestOf(format_.code);
    if (!format_.IsFp8() && format_.IsDynamic() && encoder == TokenEncoder::kVllmTruncate) {
      return std::max(1.0, past);
    }
    return std::max(HalfGap(format_.code, t), past);
  }

  // x: as the row type; given: before it was rounded to that.
  void BoundElement(const RoundTripQuestion& question, double x, float stored_scale, double given,
                    size_t i, RowBound* bound) const {
    const TokenEncoder encoder = question.profile.token_encode;
    const double size = std::fabs(x);
    const double s = stored_scale;
    const double t = s == 0 ? 0 : size / s;
    const bool reciprocal = format_.IsDynamic() && encoder != TokenEncoder::kDivide;
    std::array<double, kScaledTerms> terms{};
    terms[kCode] = s == 0 ? size : s * CodeError(encoder, t);
    // Roundings between x / s and q, twice: of q, and of the error of its code, which may grow as
    // much where q passes into the next binade or past the largest code; and the half that is
    // added to integers. A reciprocal is one unit (two roundings) off at most beside its own.
    const double roundings = reciprocal ? 4 : 1;
    terms[kEncoder] = (2 * roundings + 1) * kU32 * size + s * 0x1p-149;
    if (!format_.IsFp8()) terms[kEncoder] += kU32 * (size + s);
    bool overflows = false;
    if (!format_.IsDynamic() && format_.IsFp8() &&
        question.profile.fp8_overflow == Fp8Overflow::kNan) {
      const float q = PositionOf(DivisorOf(format_, encoder, stored_scale), static_cast<float>(x));
      overflows =
          NearestValue(format_.code, std::fabs(static_cast<double>(q))) > LargestOf(format_.code);
    }
    const auto total = [&] {
      double sum = 0;
      for (const double term : terms) sum += term;
      return sum * kEvaluation;
    };
    double others = 0;  // roundings of another code's value, at most two gaps further out
    const double further = 4 * s * HalfGap(format_.code, t);
    const auto rounds = [&](DType type, ScaledTerm term) {
      const double largest = size + total();
      overflows = overflows || largest >= OverflowThreshold(type);
      if (overflows) return;
      terms[term] += HalfSpacing(type, largest);
      others += 2 * HalfSpacing(type, largest + further);
    };
    if (question.decode == DecodeRounding::kTwoRoundings) rounds(DType::kFloat32, kDecode);
    if (question.decode != DecodeRounding::kExact &&
        !(question.decode == DecodeRounding::kTwoRoundings &&
          format_.row_type == DType::kFloat32)) {
      rounds(format_.row_type, kDecode);
    }
    terms[kRow] = std::fabs(given - x);
    if (question.read.has_value() &&
        (question.decode == DecodeRounding::kExact || !Holds(*question.read, format_.row_type))) {
      rounds(*question.read, kRow);
    }
    bound->overflows[i] = overflows;
    if (overflows) {
      bound->total[i] = kInfinity;
      return;
    }
    for (size_t term = 0; term < kScaledTerms; ++term) {
      bound->terms[term][i] = terms[term] * kEvaluation;
    }
    bound->total[i] = total();
    bound->wrong_code[i] =
        std::max(0.0, WrongCode(encoder, t, s) - terms[kRow] - others - size * (kEvaluation - 1));
  }

  // How near to x the value of another code than the nearest one comes. Truncation takes the
  // second nearest as well.
  double WrongCode(TokenEncoder encoder, double t, double s) const {
    if (s == 0 || (!format_.IsFp8() && encoder == TokenEncoder::kVllmTruncate)) return 0;
    const double value = std::min(NearestValue(format_.code, t), LargestOf(format_.code));
    const double gap = 2 * HalfGap(format_.code, value);
    // Below a power of two codes stand half as far apart.
    const bool half = format_.IsFp8() && value > 0 &&
                      HalfGap(format_.code, value * (1 - 0x1p-30)) < HalfGap(format_.code, value);
    const double outward = t - value;
    return s * std::min(gap - outward, (half ? gap / 2 : gap) + outward);
  }

  ScaledFormat format_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const ScaledFormat& format) {
  return std::make_unique<ScaledArithmetic>(format);
}

}  // namespace kvcheck
