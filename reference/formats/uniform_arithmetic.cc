// Uniform codes as vLLM's Triton kernel writes V (formats.md, section D), one f32 operation at a
// time: s = max((max - min) (1 / L), 1e-8) with L = 2^bits - 1, codes trunc((x - min) r + 1/2)
// within 0..L, r = 1 / s; s and min are stored as f16, and codes are made by what they were before.
// r comes from an instruction that is off by one unit at most, which leaves some codes open.

#include <algorithm>
#include <array>
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

enum UniformTerm { kUniformRow, kCode, kStoredScale, kStoredMinimum, kSum, kWriter, kUniformTerms };

struct Parameters {
  float scale = 0;  // by which codes are made
  float reciprocal = 0;
  float minimum = 0;
  bool is_zero_of_any_sign = false;  // the minimum is among zeros of both signs
  double StoredScale() const { return ToFloat16(static_cast<double>(scale)); }
  double StoredMinimum() const { return ToFloat16(static_cast<double>(minimum)); }

  static double ToFloat16(double x) {
    RoundAll({&x, 1}, DType::kFloat16);
    return x;
  }
};

// toward: of the reciprocal, one unit to 0 or to infinity; NaN is the nearest one.
Parameters ParametersOf(int bits, std::span<const float> x,
                        float toward = std::numeric_limits<float>::quiet_NaN()) {
  Parameters parameters;
  float lowest = std::numeric_limits<float>::infinity(), highest = -lowest;
  bool positive_zero = false, negative_zero = false;
  for (const float value : x) {
    lowest = value < lowest ? value : lowest;
    highest = value > highest ? value : highest;
    if (value == 0) (std::signbit(value) ? negative_zero : positive_zero) = true;
  }
  const float step = (highest - lowest) * (1.0f / static_cast<float>((1 << bits) - 1));
  parameters.scale = step > 1e-8f ? step : 1e-8f;
  parameters.reciprocal = 1.0f / parameters.scale;
  if (!std::isnan(toward)) parameters.reciprocal = std::nextafterf(parameters.reciprocal, toward);
  parameters.minimum = lowest;
  parameters.is_zero_of_any_sign = lowest == 0 && positive_zero && negative_zero;
  return parameters;
}

int CodeOf(int bits, const Parameters& parameters, float x) {
  const float position = (x - parameters.minimum) * parameters.reciprocal + 0.5f;
  return static_cast<int>(std::clamp(position, 0.0f, static_cast<float>((1 << bits) - 1)));
}

// What is stored of the row is finite.
bool HasParameters(int bits, std::span<const float> x) {
  if (!std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); })) {
    return false;
  }
  const Parameters parameters = ParametersOf(bits, x);
  return std::isfinite(parameters.StoredScale()) && std::isfinite(parameters.StoredMinimum());
}

// The bytes of a row's codes; of a row that is not finite NaN has the code 0.
std::vector<std::byte> CodeBytesOf(const UniformFormat& format, const Parameters& parameters,
                                   std::span<const float> row) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(format.CodeBytes(static_cast<int64_t>(row.size()))));
  for (size_t i = 0; i < row.size(); ++i) {
    const float position = (row[i] - parameters.minimum) * parameters.reciprocal;
    if (std::isnan(position)) continue;
    const auto code = static_cast<unsigned>(CodeOf(format.bits, parameters, row[i]));
    const size_t at = i * static_cast<size_t>(format.bits);
    bytes[at / 8] |= static_cast<std::byte>(code << at % 8);
    if (at % 8 + static_cast<size_t>(format.bits) > 8) {
      bytes[at / 8 + 1] |= static_cast<std::byte>(code >> (8 - at % 8));
    }
  }
  return bytes;
}

unsigned ReadCode(const std::byte* bytes, int bits, size_t i) {
  const size_t at = i * static_cast<size_t>(bits);
  unsigned read = std::to_integer<unsigned>(bytes[at / 8]) >> at % 8;
  if (at % 8 + static_cast<size_t>(bits) > 8) {
    read |= std::to_integer<unsigned>(bytes[at / 8 + 1]) << (8 - at % 8);
  }
  return read & ((1u << bits) - 1);
}

class UniformRows : public RowArithmetic {
 public:
  UniformRows(const UniformFormat& format, const Profile& profile)
      : format_(format), decode_(profile.decode) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    const std::vector<float> row = RowInFloats(format_.row_type, x);
    const Parameters parameters = ParametersOf(format_.bits, row);
    const std::vector<std::byte> bytes = CodeBytesOf(format_, parameters, row);
    std::memcpy(stored[0], bytes.data(), bytes.size());
    const std::array<double, 2> halves = {parameters.scale, parameters.minimum};
    std::byte* scale = format_.is_inline ? stored[0] + bytes.size() : stored[1];
    std::byte* minimum = format_.is_inline ? scale + 2 : stored[2];
    EncodeFrom({&halves[0], 1}, DType::kFloat16, scale);
    EncodeFrom({&halves[1], 1}, DType::kFloat16, minimum);
  }

  // The product has 15 bits, and a sum of f16 numbers and such products is exact in double.
  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    const auto code_bytes = format_.CodeBytes(static_cast<int64_t>(hi.size()));
    const std::byte* scale_at = format_.is_inline ? stored[0] + code_bytes : stored[1];
    const std::byte* minimum_at = format_.is_inline ? scale_at + 2 : stored[2];
    const double scale = HalfAt(scale_at), minimum = HalfAt(minimum_at);
    for (size_t i = 0; i < hi.size(); ++i) {
      hi[i] = ReadCode(stored[0], format_.bits, i) * scale + minimum;
    }
    std::fill(lo.begin(), lo.end(), 0.0);
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    DecodeExact(stored, out, {});
    if (decode_ == DecodeRounding::kTwoRoundings) RoundAll(out, DType::kFloat32);
    RoundAll(out, format_.row_type);
  }

 private:
  static double HalfAt(const std::byte* code) {
    double value = 0;
    DecodeBytes(code, DType::kFloat16, {&value, 1});
    return value;
  }

  UniformFormat format_;
  DecodeRounding decode_;
};

class UniformArithmetic : public FormatArithmetic {
 public:
  explicit UniformArithmetic(const UniformFormat& format) : format_(format) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t) const override {
    return std::make_unique<UniformRows>(format_, profile);
  }
  std::vector<std::string> Terms() const override {
    return {"row rounding",     "code",         "scale rounding",
            "minimum rounding", "sum rounding", "encoder arithmetic"};
  }

  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const std::vector<float> row = RowInFloats(format_.row_type, x);
    if (!HasParameters(format_.bits, row)) {
      for (size_t i = 0; i < row.size(); ++i) {
        bound->undefined[i] = bound->overflows[i] = true;
        bound->total[i] = kUnbounded;
      }
      return;
    }
    const Parameters parameters = ParametersOf(format_.bits, row);
    for (size_t i = 0; i < row.size(); ++i) {
      BoundElement(question, row[i], parameters, x[i], i, bound);
    }
  }

  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    AddChanges(profile, CodecChoice::kDecode, &changes, {"exact"});
    return changes;
  }

  void AddAlternatives(const Profile&, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    const size_t codes_of_all = x.size() * static_cast<size_t>(format_.bits) / 8;
    const size_t rows = format_.is_inline ? ((*tiles)[0].value.size() - codes_of_all) / 4
                                          : (*tiles)[1].value.size();
    const size_t dim = rows == 0 ? 0 : x.size() / rows;
    for (size_t r = 0; r < rows; ++r) {
      const std::vector<float> row = RowInFloats(format_.row_type, x.subspan(r * dim, dim));
      if (HasParameters(format_.bits, row)) {
        AddOpenCodes(row, r, tiles);
        AddOpenSign(row, r, tiles);
        continue;
      }
      ExpectNothing(r, rows, tiles);
    }
  }

 private:
  // Bytes of codes under the reciprocals next to the nearest one.
  void AddOpenCodes(std::span<const float> row, size_t r, std::vector<ExpectedTile>* tiles) const {
    const auto bytes_with = [&](float toward) {
      return CodeBytesOf(format_, ParametersOf(format_.bits, row, toward), row);
    };
    const std::vector<std::byte> nearest = bytes_with(std::numeric_limits<float>::quiet_NaN());
    const size_t stride = nearest.size() + (format_.is_inline ? 4 : 0);
    for (const float toward : {0.0f, std::numeric_limits<float>::infinity()}) {
      const std::vector<std::byte> other = bytes_with(toward);
      for (size_t i = 0; i < other.size(); ++i) {
        if (other[i] == nearest[i]) continue;
        (*tiles)[0].alternatives.push_back({.element = static_cast<int64_t>(r * stride + i),
                                            .value = static_cast<double>(other[i]),
                                            .any = false,
                                            .reason = kReciprocalUnit});
      }
    }
  }

  // Which of the zeros of a row is its minimum.
  void AddOpenSign(std::span<const float> row, size_t r, std::vector<ExpectedTile>* tiles) const {
    if (!ParametersOf(format_.bits, row).is_zero_of_any_sign) return;
    const auto code_bytes = format_.CodeBytes(static_cast<int64_t>(row.size()));
    const auto at = static_cast<int64_t>(r);
    Alternative sign = {.element = format_.is_inline ? at * (code_bytes + 4) + code_bytes + 3 : at,
                        .value = 0,
                        .any = false,
                        .reason = kSignOfZeroMinimum};
    sign.free_bits = format_.is_inline ? 0x80 : 0x8000;
    (*tiles)[format_.is_inline ? 0 : 2].alternatives.push_back(sign);
  }

  // x: as the row type; given: before it was rounded to that.
  void BoundElement(const RoundTripQuestion& question, double x, const Parameters& parameters,
                    double given, size_t i, RowBound* bound) const {
    const double levels = (1 << format_.bits) - 1;
    const double s = parameters.scale;
    const double above_minimum = x - static_cast<double>(parameters.minimum);
    const double t = above_minimum / s;  // position among the codes
    std::array<double, kUniformTerms> terms{};
    terms[kCode] = s * std::max(0.5, t - levels);
    // Roundings of x - min, of 1 / s (one unit beside its own), of the product and of the sum with
    // 1/2; one more for what is of second order.
    terms[kWriter] = kUnit * (7 * above_minimum + s) + s * 0x1p-149;
    const double of_scale = std::fabs(parameters.StoredScale() - s);
    const double highest = std::min(levels, t + 0.5 + terms[kWriter] / s);
    terms[kStoredScale] = highest * of_scale;
    terms[kStoredMinimum] =
        std::fabs(parameters.StoredMinimum() - static_cast<double>(parameters.minimum));
    const auto total = [&] {
      double sum = 0;
      for (const double term : terms) sum += term;
      return sum * kOwnRounding;
    };
    bool overflows = false;
    double others = 0;
    const auto rounds = [&](DType type, UniformTerm term) {
      const double largest = std::fabs(x) + total();
      overflows = overflows || largest >= OverflowThreshold(type);
      if (overflows) return;
      terms[term] += HalfSpacing(type, largest);
      others += 2 * HalfSpacing(type, largest + 2 * s);
    };
    const bool twice = question.decode == DecodeRounding::kTwoRoundings;
    if (twice) rounds(DType::kFloat32, kSum);
    if (question.decode != DecodeRounding::kExact &&
        !(twice && format_.row_type == DType::kFloat32)) {
      rounds(format_.row_type, kSum);
    }
    terms[kUniformRow] = std::fabs(given - x);
    if (question.read.has_value() &&
        (question.decode == DecodeRounding::kExact || !Holds(*question.read, format_.row_type))) {
      rounds(*question.read, kUniformRow);
    }
    bound->overflows[i] = overflows;
    if (overflows) {
      bound->total[i] = kUnbounded;
      return;
    }
    for (size_t term = 0; term < kUniformTerms; ++term) {
      bound->terms[term][i] = terms[term] * kOwnRounding;
    }
    bound->total[i] = total();
    const double above = t - std::floor(t);
    const double next = t >= levels ? t - (levels - 1) : std::max(above, 1 - above);
    others += terms[kUniformRow] + levels * of_scale + terms[kStoredMinimum] + terms[kWriter];
    bound->wrong_code[i] = std::max(0.0, s * next - others * kOwnRounding);
  }

  UniformFormat format_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const UniformFormat& format) {
  return std::make_unique<UniformArithmetic>(format);
}

}  // namespace kvcheck
