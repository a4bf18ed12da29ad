// Rows that are rotated before another format stores them: the rotation in f32, one operation at a
// time, around that format's own arithmetic. Derivation of the bound: formats.md, section F.

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/formats/format_arithmetic.h"
#include "reference/formats/plain.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kUnit32 = 0x1p-24;
// Formulas are evaluated in double with fewer than 2^11 operations on non-negative terms: their own
// rounding stays below 2^-41 of the result.
constexpr double kOwn = 1 + 0x1p-40;

enum RotatedTerm { kOfRowType, kOfStored, kOfRotation, kRotatedTerms };

// Each step in f32: butterflies of strides 1, 2, ..., size / 2, then times f32(1 / sqrt size).
void RotateBlocks(size_t size, std::span<float> values) {
  for (size_t first = 0; first < values.size(); first += size) {
    const std::span<float> block = values.subspan(first, size);
    HadamardInOrder(block);
    for (float& value : block) value *= RotationScale<float>(size);
  }
}

// The f32 nearest to hi + lo.
float ToFloat(double hi, double lo) {
  const auto nearest = static_cast<float>(hi);
  const double rest = hi - static_cast<double>(nearest);
  if (lo == 0 || rest == 0 || !std::isfinite(nearest)) return nearest;
  // Where hi lies halfway, lo decides.
  const float toward =
      rest > 0 ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity();
  const float other = std::nextafterf(nearest, toward);
  const bool halfway = static_cast<double>(other) - hi == rest;
  return halfway && (lo > 0) == (rest > 0) ? other : nearest;
}

class RotatedRows : public RowArithmetic {
 public:
  RotatedRows(const RotatedFormat& format, const Profile& profile, int64_t head_dim)
      : format_(format),
        exact_(profile.decode == DecodeRounding::kExact),
        stored_(ArithmeticOf(std::visit([](const auto& f) { return KvFormat(f); }, format.stored))
                    ->MakeRows(profile, head_dim)),
        values_(static_cast<size_t>(head_dim)),
        rotated_(values_.size()),
        rest_(values_.size()) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    std::copy(x.begin(), x.end(), rotated_.begin());
    RoundAll(rotated_, format_.RowType());
    std::copy(rotated_.begin(), rotated_.end(), values_.begin());  // exact
    RotateBlocks(static_cast<size_t>(format_.size), values_);
    std::copy(values_.begin(), values_.end(), rotated_.begin());
    stored_->Encode(rotated_, stored);
  }

  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    if (exact_) {
      stored_->DecodeExact(stored, rotated_, rest_);
    } else {
      stored_->DecodeToRowType(stored, rotated_);
      std::fill(rest_.begin(), rest_.end(), 0.0);
    }
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = ToFloat(rotated_[i], rest_[i]);
    RotateBlocks(static_cast<size_t>(format_.size), values_);
    std::copy(values_.begin(), values_.end(), hi.begin());
    std::fill(lo.begin(), lo.end(), 0.0);
  }

  void DecodeInBasis(RowPlanesView stored, std::span<double> out) override {
    stored_->DecodeExact(stored, out, rest_);
  }

  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    DecodeExact(stored, out, {});
    RoundAll(out, format_.RowType());
  }

 private:
  RotatedFormat format_;
  bool exact_;
  std::unique_ptr<RowArithmetic> stored_;
  std::vector<float> values_;
  std::vector<double> rotated_, rest_;
};

class RotatedArithmetic : public FormatArithmetic {
 public:
  explicit RotatedArithmetic(const RotatedFormat& format)
      : format_(format),
        size_(static_cast<size_t>(format.size)),
        stored_(
            ArithmeticOf(std::visit([](const auto& f) { return KvFormat(f); }, format.stored))) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t head_dim) const override {
    return std::make_unique<RotatedRows>(format_, profile, head_dim);
  }

  StoredBasis Basis(int64_t head_dim) const override {
    return ConsecutiveBlocks(static_cast<size_t>(head_dim) / size_, size_,
                             std::vector<float>(size_, 1.0f));
  }

  std::vector<std::string> Terms() const override {
    return {"row rounding", "stored rotated row", "rotation arithmetic"};
  }

  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const std::vector<double> rounded = RoundedRow(x);
    const std::vector<double> rotated = Rotated(rounded);
    RowBound of_stored;
    of_stored.total.resize(x.size());
    of_stored.overflows.resize(x.size());
    of_stored.undefined.resize(x.size());
    of_stored.wrong_code.resize(x.size());
    of_stored.terms.assign(stored_->Terms().size(), std::vector<double>(x.size()));
    RoundTripQuestion inner = question;
    inner.given = DType::kFloat32;
    inner.read.reset();
    stored_->Bound(inner, rotated, &of_stored);
    for (size_t first = 0; first < x.size(); first += size_) {
      BoundBlock(question, x, rounded, rotated, of_stored, first, bound);
    }
  }

  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    return stored_->OtherProfiles(profile);
  }
  std::vector<Profile> UndeclaredEncoders(const Profile& profile) const override {
    return stored_->UndeclaredEncoders(profile);
  }
  // decode=exact names no order of sums.
  bool LeavesDecodeOpen(const Profile& profile) const override {
    return profile.decode == DecodeRounding::kExact;
  }
  // Two orders, each within the rotation's term of the bound beside values that f32 rounded, and a
  // rounding to the row type of each.
  void DecodeBound(const Profile&, RowPlanesView, std::span<const double> y,
                   std::span<double> bound) const override {
    const double root = std::sqrt(static_cast<double>(size_));
    const DType type = format_.RowType();
    const bool rounds = type != DType::kFloat32;
    for (size_t first = 0; first < y.size(); first += size_) {
      // What the format holds, but for what the rotation back and the rounding of y lost.
      std::vector<double> held(y.begin() + static_cast<std::ptrdiff_t>(first),
                               y.begin() + static_cast<std::ptrdiff_t>(first + size_));
      double lost = 0, sum = 0;
      for (const double value : held) {
        if (!std::isfinite(value)) continue;
        lost += (rounds ? HalfSpacing(type, value) : 0) + Roundings() * std::fabs(value);
      }
      HadamardInOrder<double>(held);
      for (const double value : held) sum += (std::fabs(value) + lost) / root;
      for (size_t i = first; i < first + size_; ++i) {
        bound[i] = 2 * (Roundings() + kUnit32) * sum / root * kOwn + 0x1p-147;
        const double largest = std::fabs(y[i]) + bound[i];
        if (!(largest < OverflowThreshold(type))) {
          bound[i] = std::numeric_limits<double>::infinity();
        } else if (rounds) {
          bound[i] += 2 * HalfSpacing(type, largest);
        }
      }
    }
  }
  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    stored_->AddAlternatives(profile, Rotated(RoundedRow(x)), tiles);
  }

 private:
  std::vector<double> RoundedRow(std::span<const double> x) const {
    std::vector<double> rounded(x.begin(), x.end());
    RoundAll(rounded, format_.RowType());
    return rounded;
  }

  std::vector<double> Rotated(const std::vector<double>& rounded) const {
    std::vector<float> values(rounded.begin(), rounded.end());  // exact
    RotateBlocks(size_, values);
    return {values.begin(), values.end()};
  }

  // Of one rotation, relative to the sum of absolute values over sqrt(size): log2(size) partial
  // sums, the scale's own rounding, the product with it.
  double Roundings() const { return (std::log2(static_cast<double>(size_)) + 2) * kUnit32; }

  // Element i of H v is a sum of the block's v with signs, over sqrt(size): an error of at most b_j
  // in each v_j shows as at most sum b_j / sqrt(size).
  void BoundBlock(const RoundTripQuestion& question, std::span<const double> x,
                  const std::vector<double>& rounded, const std::vector<double>& rotated,
                  const RowBound& of_stored, size_t first, RowBound* bound) const {
    const double root = std::sqrt(static_cast<double>(size_));
    bool undefined = false, overflows = false;
    double sum_bound = 0, sum_stored = 0, sum_x = 0;
    for (size_t i = first; i < first + size_; ++i) {
      undefined = undefined || of_stored.undefined[i] || !std::isfinite(rounded[i]);
      overflows = overflows || undefined || of_stored.overflows[i] || !std::isfinite(rotated[i]);
      sum_bound += of_stored.total[i];
      sum_stored += std::fabs(rotated[i]) + of_stored.total[i];
      sum_x += std::fabs(rounded[i]);
    }
    // Partial sums on the way back.
    overflows = overflows || !(sum_stored * kOwn < OverflowThreshold(DType::kFloat32));
    // Of the first rotation every element errs by Roundings() sum_x / root, of which the second
    // makes a sum of `size` over root.
    const double of_rotation = Roundings() * (sum_x + sum_stored / root) * (1 + 0x1p-10) + 0x1p-140;
    const double of_block = (sum_bound / root + of_rotation) * kOwn;
    for (size_t i = first; i < first + size_; ++i) {
      const double x_error = std::fabs(x[i] - rounded[i]);
      double of_row = x_error;
      bool too_large = overflows;
      const auto rounded_to = [&](DType type) {
        const double largest = (std::fabs(x[i]) + of_row + of_block) * kOwn;
        too_large = too_large || !(largest < OverflowThreshold(type));
        if (!too_large) of_row += HalfSpacing(type, largest);
      };
      const DType row_type = format_.RowType();
      if (question.decode != DecodeRounding::kExact && row_type != DType::kFloat32) {
        rounded_to(row_type);
      }
      const DType holds = question.decode == DecodeRounding::kExact ? DType::kFloat32 : row_type;
      if (question.read && !Holds(*question.read, holds)) rounded_to(*question.read);
      bound->undefined[i] = undefined;
      bound->overflows[i] = too_large;
      if (too_large) {
        bound->total[i] = std::numeric_limits<double>::infinity();
        continue;
      }
      bound->terms[kOfRowType][i] = of_row;
      bound->terms[kOfStored][i] = sum_bound / root;
      bound->terms[kOfRotation][i] = of_rotation;
      bound->total[i] = (of_row + of_block) * kOwn;
    }
  }

  RotatedFormat format_;
  size_t size_;
  std::unique_ptr<FormatArithmetic> stored_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const RotatedFormat& format) {
  return std::make_unique<RotatedArithmetic>(format);
}

}  // namespace kvcheck
