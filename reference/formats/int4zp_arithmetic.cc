// Nibbles with a zero point as vLLM's Triton kernel writes them, one f32 operation at a time
// (formats.md, section D): s = max((max - min) (1 / 15), 1e-6), r = 1 / s; z = -min r to the
// nearest integer, half away from zero, within 0..15; codes fma(x, r, z) likewise. Codes are made
// by s, and what is stored is s with its low 4 bits replaced by z: readers clear them. r comes from
// an instruction that is off by one unit at most, which leaves some codes and zero points open.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/formats/plain.h"
#include "reference/formats/vector_rows.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kUnit = 0x1p-24;
// As in ggml_blocks.cc: fewer than 2^6 operations in double on non-negative terms.
constexpr double kOwnRounding = 1.0 + 0x1p-40;
constexpr uint32_t kZeroPointBits = 15;
constexpr float kLargestNibble = 15;

enum Int4zpTerm { kInt4zpRow, kNibble, kMaskedScale, kWriter, kInt4zpTerms };

struct Parameters {
  float scale = 0;       // by which codes are made
  float reciprocal = 0;  // of the scale
  int zero_point = 0;
  float Stored() const {
    const uint32_t bits = std::bit_cast<uint32_t>(scale);
    return std::bit_cast<float>((bits & ~kZeroPointBits) | static_cast<uint32_t>(zero_point));
  }
};

float MaskedScale(float stored) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(stored) & ~kZeroPointBits);
}
int ZeroPoint(float stored) {
  return static_cast<int>(std::bit_cast<uint32_t>(stored) & kZeroPointBits);
}

// To the nearest integer of 0..15, half away from zero: 1/2 is added, and truncated. 0 of NaN.
int NearestNibble(float position) {
  const float shifted = position >= 0 ? position + 0.5f : position - 0.5f;
  if (std::isnan(shifted)) return 0;
  return static_cast<int>(std::clamp(shifted, 0.0f, kLargestNibble));
}

// Which of the reciprocals: the nearest, or one beside it.
enum class Reciprocal { kNearest, kBelow, kAbove };

// NaN is skipped.
Parameters ParametersOf(std::span<const float> x, Reciprocal which = Reciprocal::kNearest) {
  float lowest = std::numeric_limits<float>::infinity(), highest = -lowest;
  for (const float value : x) {
    lowest = value < lowest ? value : lowest;
    highest = value > highest ? value : highest;
  }
  const float range = highest - lowest;
  const float fifteenth = 1.0f / kLargestNibble;
  const float step = range * fifteenth;
  Parameters parameters;
  parameters.scale = step > 1e-6f ? step : 1e-6f;
  parameters.reciprocal = 1.0f / parameters.scale;
  if (which != Reciprocal::kNearest) {
    parameters.reciprocal = std::nextafterf(
        parameters.reciprocal,
        which == Reciprocal::kBelow ? 0.0f : std::numeric_limits<float>::infinity());
  }
  parameters.zero_point = NearestNibble(-lowest * parameters.reciprocal);
  return parameters;
}

int NibbleOf(const Parameters& parameters, float x) {
  return NearestNibble(
      std::fma(x, parameters.reciprocal, static_cast<float>(parameters.zero_point)));
}

bool HasParameters(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); }) &&
         std::isfinite(ParametersOf(x).scale);
}

class Int4zpRows : public RowArithmetic {
 public:
  explicit Int4zpRows(const Int4zpFormat& format) : format_(format) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    const std::vector<float> row = RowInFloats(format_.row_type, x);
    const Parameters parameters = ParametersOf(row);
    for (size_t i = 0; i < row.size(); i += 2) {
      const int low = NibbleOf(parameters, row[i]);
      const int high = NibbleOf(parameters, row[i + 1]);
      stored[0][i / 2] = static_cast<std::byte>(low | high << 4);
    }
    const float scale = parameters.Stored();
    std::memcpy(format_.is_inline ? stored[0] + row.size() / 2 : stored[1], &scale, sizeof(scale));
  }
  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    float scale = 0;
    std::memcpy(&scale, format_.is_inline ? stored[0] + hi.size() / 2 : stored[1], sizeof(scale));
    const double step = MaskedScale(scale);
    for (size_t i = 0; i < hi.size(); ++i) {
      const int byte = std::to_integer<int>(stored[0][i / 2]);
      hi[i] = ((i % 2 == 0 ? byte & 15 : byte >> 4) - ZeroPoint(scale)) * step;
    }
    std::fill(lo.begin(), lo.end(), 0.0);
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    DecodeExact(stored, out, {});
    RoundAll(out, format_.row_type);
  }

 private:
  Int4zpFormat format_;
};

class Int4zpArithmetic : public FormatArithmetic {
 public:
  explicit Int4zpArithmetic(const Int4zpFormat& format) : format_(format) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile&, int64_t) const override {
    return std::make_unique<Int4zpRows>(format_);
  }
  std::vector<std::string> Terms() const override {
    return {"row rounding", "code", "scale rounding", "encoder arithmetic"};
  }

  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const std::vector<float> row = RowInFloats(format_.row_type, x);
    if (!HasParameters(row)) {
      for (size_t i = 0; i < row.size(); ++i) {
        bound->undefined[i] = bound->overflows[i] = true;
        bound->total[i] = kUnbounded;
      }
      return;
    }
    const Parameters parameters = ParametersOf(row);
    for (size_t i = 0; i < row.size(); ++i) {
      BoundElement(question, row[i], parameters, x[i], i, bound);
    }
  }

  std::vector<ProfileChange> OtherProfiles(const Profile&) const override { return {}; }

  void AddAlternatives(const Profile&, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    const size_t rows = format_.is_inline
                            ? ((*tiles)[0].value.size() - x.size() / 2) / sizeof(float)
                            : (*tiles)[1].value.size();
    const size_t dim = rows == 0 ? 0 : x.size() / rows;
    for (size_t r = 0; r < rows; ++r) {
      const std::vector<float> row = RowInFloats(format_.row_type, x.subspan(r * dim, dim));
      if (HasParameters(row)) {
        AddReciprocalAlternatives(row, r, tiles);
        continue;
      }
      ExpectNothing(r, rows, tiles);
    }
  }

 private:
  // Bytes, and scales, under the reciprocals next to the nearest one.
  void AddReciprocalAlternatives(std::span<const float> row, size_t r,
                                 std::vector<ExpectedTile>* tiles) const {
    const Parameters nearest = ParametersOf(row);
    const size_t half = row.size() / 2;
    const size_t stride = format_.is_inline ? half + sizeof(float) : half;
    const auto add = [&](size_t tile, size_t element, double value) {
      (*tiles)[tile].alternatives.push_back({.element = static_cast<int64_t>(element),
                                             .value = value,
                                             .any = false,
                                             .reason = kReciprocalUnit});
    };
    for (const Reciprocal which : {Reciprocal::kBelow, Reciprocal::kAbove}) {
      const Parameters other = ParametersOf(row, which);
      for (size_t i = 0; i < half; ++i) {
        const auto nibbles = [&](const Parameters& low, const Parameters& high) {
          return NibbleOf(low, row[2 * i]) | NibbleOf(high, row[2 * i + 1]) << 4;
        };
        const int expected = nibbles(nearest, nearest);
        // A row has one reciprocal; a byte that holds both ways in one is none of its.
        const int open = nibbles(other, other);
        if (open != expected) add(0, r * stride + i, open);
      }
      if (other.zero_point == nearest.zero_point) continue;
      if (format_.is_inline) {
        const uint32_t bits = std::bit_cast<uint32_t>(other.Stored());
        add(0, r * stride + half, bits & 0xff);  // the zero point is in the lowest byte
      } else {
        add(1, r, static_cast<double>(other.Stored()));
      }
    }
  }

  // x: as the row type; given: before it was rounded to that.
  void BoundElement(const RoundTripQuestion& question, double x, const Parameters& parameters,
                    double given, size_t i, RowBound* bound) const {
    const double size = std::fabs(x);
    const double s = parameters.scale;
    const double z = parameters.zero_point;
    const double t = x / s + z;  // position among the codes
    std::array<double, kInt4zpTerms> terms{};
    terms[kNibble] = s * std::max({0.5, t - 15, -t});
    // Roundings of 1 / s (one unit beside its own), of the product with the sum and of that with
    // 1/2; one more for what is of second order. Another z is open where -min / s is half an
    // integer but for the error of its own position, which is at most 16: that much is added to t.
    terms[kWriter] = kUnit * (6 * size + s * (3 * z + 81)) + s * 0x1p-149;
    const double lost = s - static_cast<double>(MaskedScale(parameters.Stored()));
    terms[kMaskedScale] = std::min(15.0, size / s + 0.5 + terms[kWriter] / s) * lost;
    const auto total = [&] {
      double sum = 0;
      for (const double term : terms) sum += term;
      return sum * kOwnRounding;
    };
    bool overflows = false;
    double others = 0;
    // Values are exact in f32.
    const auto rounds = [&](DType type) {
      const double largest = size + total();
      overflows = overflows || largest >= OverflowThreshold(type);
      if (overflows || Holds(type, DType::kFloat32)) return;
      terms[kInt4zpRow] += HalfSpacing(type, largest);
      others += 2 * HalfSpacing(type, largest + 2 * s);
    };
    terms[kInt4zpRow] = std::fabs(given - x);
    const bool is_rounded = question.decode != DecodeRounding::kExact;
    if (is_rounded) rounds(format_.row_type);
    if (question.read.has_value() && !(is_rounded && Holds(*question.read, format_.row_type))) {
      rounds(*question.read);
    }
    bound->overflows[i] = overflows;
    if (overflows) {
      bound->total[i] = kUnbounded;
      return;
    }
    for (size_t term = 0; term < kInt4zpTerms; ++term) {
      bound->terms[term][i] = terms[term] * kOwnRounding;
    }
    bound->total[i] = total();
    const double above = t - std::floor(t);
    const double next = t <= 0 ? 1 - t : t >= 15 ? t - 14 : std::max(above, 1 - above);
    others += terms[kInt4zpRow] + std::min(15.0, size / s + 1.5) * lost + terms[kWriter];
    bound->wrong_code[i] = std::max(0.0, s * next - others * kOwnRounding);
  }

  Int4zpFormat format_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Int4zpFormat& format) {
  return std::make_unique<Int4zpArithmetic>(format);
}

}  // namespace kvcheck
