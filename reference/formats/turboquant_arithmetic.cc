// Rows of turboquant groups: planes, what the f32 of the writers leaves open, and the bound of a
// round trip. Derivations: formats.md, section E.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "reference/formats/affine.h"
#include "reference/formats/format_arithmetic.h"
#include "reference/formats/ggml_blocks.h"
#include "reference/formats/plain.h"
#include "reference/formats/turboquant.h"
#include "reference/formats/turboquant_codebook.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

enum TurboquantPlane : size_t { kWords, kNorms };
enum TurboquantTerm { kOfRow, kOfCodes, kOfTies, kOfDecoder, kTurboquantTerms };

constexpr double kUnit = 0x1p-24;  // of f32
constexpr double kNoBound = std::numeric_limits<double>::infinity();
// Formulas are evaluated in double, with fewer than 2^11 operations whose intermediate results stay
// below 2^5 norms: their own rounding is below 2^-36 norms.
constexpr double kOwnRounding = 0x1p-36;

std::vector<float> RoundedTo(DType type, std::span<const double> x) {
  std::vector<double> rounded(x.begin(), x.end());
  RoundAll(rounded, type);
  return {rounded.begin(), rounded.end()};  // exact
}

bool AllFinite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
}

double AsHalf(double value) { return RoundTo(DType::kFloat16, value); }

// A group of finite values in double, as exact as the bound needs it.
struct ExactGroup {
  double norm = 0;
  // Relative: d squares and their sum, in f32 and any order, then the root and what it divides.
  double norm_error = 0;
  std::vector<double> y;  // rotated
};

ExactGroup Evaluate(const TurboquantGroup& group, std::span<const float> x) {
  ExactGroup exact;
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  exact.norm = std::sqrt(sum);
  exact.norm_error = (static_cast<double>(x.size()) / 2 + 2) * kUnit;
  exact.y.assign(x.begin(), x.end());
  const double divisor = group.Divisor(exact.norm);
  for (double& value : exact.y) value /= divisor;
  Rotate<double>(group.signs(), exact.y);
  return exact;
}

// Of a value's terms: sums, three products, and where the centroids are divided by their norm the
// roundings of that.
double DecoderRoundings(size_t d, bool corrected) {
  return std::log2(static_cast<double>(d)) + 3 + (corrected ? static_cast<double>(d) / 2 + 4 : 0);
}

// The threshold nearest to y, by index.
size_t NearestThreshold(std::span<const float> thresholds, double y) {
  const auto above = std::lower_bound(thresholds.begin(), thresholds.end(), y,
                                      [](float t, double v) { return static_cast<double>(t) < v; });
  auto i = static_cast<size_t>(above - thresholds.begin());
  if (i == thresholds.size()) return i - 1;
  if (i > 0 &&
      y - static_cast<double>(thresholds[i - 1]) < static_cast<double>(thresholds[i]) - y) {
    --i;
  }
  return i;
}

// Whether arithmetic of any order computes coordinates that are 0 as 0: there is one element, or
// there are two of one magnitude.
bool ZerosAreExact(std::span<const float> x) {
  int count = 0;
  float magnitude = 0;
  for (const float value : x) {
    if (value == 0) continue;
    ++count;
    if (count > 2 || (count == 2 && std::fabs(value) != magnitude)) return false;
    magnitude = std::fabs(value);
  }
  return true;
}

class TurboquantRows : public RowArithmetic {
 public:
  TurboquantRows(const TurboquantFormat& format, TurboquantWriter writer)
      : format_(format),
        group_(format, writer),
        codes_(group_.d()),
        words_(group_.d() * static_cast<size_t>(format.bits) / 32),
        values_(group_.d()) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    for (size_t g = 0; g * group_.d() < x.size(); ++g) {
      const std::vector<float> of_group =
          RoundedTo(format_.row_type, x.subspan(g * group_.d(), group_.d()));
      const float norm = group_.Encode(of_group, codes_);
      PackCodes(codes_, format_.bits, words_);
      std::memcpy(stored[kWords] + g * WordBytes(), words_.data(), WordBytes());
      WriteHalf(norm, stored[kNorms] + 2 * g);
    }
  }

  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    for (size_t g = 0; g * group_.d() < hi.size(); ++g) {
      std::memcpy(words_.data(), stored[kWords] + g * WordBytes(), WordBytes());
      UnpackCodes(words_, format_.bits, codes_);
      group_.Decode(codes_, static_cast<float>(ReadHalf(stored[kNorms] + 2 * g)), values_);
      std::copy(values_.begin(), values_.end(),
                hi.begin() + static_cast<std::ptrdiff_t>(g * group_.d()));
    }
    std::fill(lo.begin(), lo.end(), 0.0);
  }

  // n c; vllm_nc: over the norm of the group's centroids.
  void DecodeInBasis(RowPlanesView stored, std::span<double> out) override {
    for (size_t g = 0; g * group_.d() < out.size(); ++g) {
      std::memcpy(words_.data(), stored[kWords] + g * WordBytes(), WordBytes());
      UnpackCodes(words_, format_.bits, codes_);
      double norm = ReadHalf(stored[kNorms] + 2 * g);
      if (group_.writer() == TurboquantWriter::kVllmNc) {
        double square = static_cast<double>(1e-16f);
        for (const uint8_t code : codes_) {
          const auto c = static_cast<double>(group_.centroids()[code]);
          square += c * c;
        }
        norm /= std::sqrt(square);
      }
      for (size_t i = 0; i < codes_.size(); ++i) {
        out[g * group_.d() + i] = norm * static_cast<double>(group_.centroids()[codes_[i]]);
      }
    }
  }

  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    DecodeExact(stored, out, {});
    RoundAll(out, format_.row_type);
  }

 private:
  size_t WordBytes() const { return words_.size() * sizeof(uint32_t); }

  TurboquantFormat format_;
  TurboquantGroup group_;
  std::vector<uint8_t> codes_;
  std::vector<uint32_t> words_;
  std::vector<float> values_;
};

class TurboquantArithmetic : public FormatArithmetic {
 public:
  explicit TurboquantArithmetic(const TurboquantFormat& format) : format_(format) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t) const override {
    return std::make_unique<TurboquantRows>(format_, profile.turboquant);
  }
  StoredBasis Basis(int64_t head_dim) const override {
    const TurboquantGroup group(format_, TurboquantWriter::kMlxVlm);
    return ConsecutiveBlocks(static_cast<size_t>(head_dim) / group.d(), group.d(), group.signs());
  }
  std::vector<std::string> Terms() const override {
    return {"row rounding", "codes and norm", "codes at thresholds", "decoder arithmetic"};
  }
  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const TurboquantGroup group(format_, question.profile.turboquant);
    for (size_t first = 0; first < x.size(); first += group.d()) {
      BoundGroup(group, question, x.subspan(first, group.d()), first, bound);
    }
  }
  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    AddChanges(profile, CodecChoice::kTurboquant, &changes);
    return changes;
  }
  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    const TurboquantGroup group(format_, profile.turboquant);
    for (size_t first = 0; first < x.size(); first += group.d()) {
      const std::vector<float> values = RoundedTo(format_.row_type, x.subspan(first, group.d()));
      const size_t index = first / group.d();
      if (!AllFinite(values) || !(AsHalf(static_cast<double>(TurboquantGroup::Norm(values))) <=
                                  FloatTypeOf(DType::kFloat16).largest_finite)) {
        LeaveOpen(index, tiles);
        continue;
      }
      const ExactGroup exact = Evaluate(group, values);
      AddNorms(exact, index, &(*tiles)[kNorms]);
      AddCodes(group, values, exact, index, &(*tiles)[kWords]);
    }
  }

  // decode=exact names no order of sums.
  bool LeavesDecodeOpen(const Profile& profile) const override {
    return profile.decode == DecodeRounding::kExact;
  }
  // Two orders, each within the decoder's term of the bound, and a rounding to the row type of
  // each.
  void DecodeBound(const Profile& profile, RowPlanesView stored, std::span<const double> y,
                   std::span<double> bound) const override {
    const size_t d = static_cast<size_t>(format_.group_size);
    const auto centroids = TurboquantCentroids(format_);
    std::vector<uint32_t> words(WordsOfGroup());
    std::vector<uint8_t> codes(d);
    const bool corrected = profile.turboquant == TurboquantWriter::kVllmNc;
    const double roundings = DecoderRoundings(d, corrected);
    for (size_t g = 0; g * d < y.size(); ++g) {
      const size_t bytes = words.size() * sizeof(uint32_t);
      std::memcpy(words.data(), stored[kWords] + g * bytes, bytes);
      UnpackCodes(words, format_.bits, codes);
      double sum = 0, square = 0;
      for (const uint8_t code : codes) {
        const double c = static_cast<double>(centroids[code]);
        sum += std::fabs(c);
        square += c * c;
      }
      double norm = std::fabs(ReadHalf(stored[kNorms] + 2 * g));
      if (corrected) norm /= std::sqrt(square);
      const double of_group =
          2 * norm * sum / std::sqrt(static_cast<double>(d)) * roundings * kUnit * (1 + 0x1p-10) +
          0x1p-147;
      for (size_t i = g * d; i < (g + 1) * d; ++i) {
        bound[i] = of_group;
        if (format_.row_type == DType::kFloat32) continue;
        bound[i] += 2 * HalfSpacing(format_.row_type, std::fabs(y[i]) + of_group);
        if (!(std::fabs(y[i]) + bound[i] < OverflowThreshold(format_.row_type)))
          bound[i] = kNoBound;
      }
    }
  }

 private:
  size_t WordsOfGroup() const {
    return static_cast<size_t>(format_.group_size) * static_cast<size_t>(format_.bits) / 32;
  }

  void LeaveOpen(size_t index, std::vector<ExpectedTile>* tiles) const {
    const auto any = [&](TurboquantPlane plane, size_t element) {
      (*tiles)[plane].alternatives.push_back({.element = static_cast<int64_t>(element),
                                              .value = 0,
                                              .any = true,
                                              .reason = kNormNotFinite});
    };
    for (size_t word = 0; word < WordsOfGroup(); ++word) any(kWords, index * WordsOfGroup() + word);
    any(kNorms, index);
  }

  // The f16 next to the stored one, where a norm summed in f32 may round to it.
  static void AddNorms(const ExactGroup& exact, size_t index, ExpectedTile* tile) {
    for (const double side : {-1.0, 1.0}) {
      const double other = AsHalf(exact.norm * (1 + side * exact.norm_error));
      if (other == tile->value[index]) continue;
      tile->alternatives.push_back({.element = static_cast<int64_t>(index),
                                    .value = other,
                                    .any = false,
                                    .reason = kNearHalfNorm});
    }
  }

  // Words with the other code in each place where either is right, in every combination of up to
  // four such places; where there are more of them in a word their bits are free.
  void AddCodes(const TurboquantGroup& group, std::span<const float> x, const ExactGroup& exact,
                size_t index, ExpectedTile* tile) const {
    const double band = kTurboquantBand / std::sqrt(static_cast<double>(group.d()));
    const bool zeros_are_exact = ZerosAreExact(x);
    const size_t words = WordsOfGroup();
    const auto bits = static_cast<size_t>(format_.bits);
    std::vector<uint8_t> codes(group.d());
    group.Encode(x, codes);
    std::map<size_t, std::vector<uint32_t>> changes;  // of each word, what a choice flips
    for (size_t j = 0; j < group.d(); ++j) {
      const size_t i = NearestThreshold(group.thresholds(), exact.y[j]);
      const double t = static_cast<double>(group.thresholds()[i]);
      if (!(std::fabs(exact.y[j] - t) <= band)) continue;
      if (exact.y[j] == 0 && t == 0 && zeros_are_exact) continue;
      const uint64_t other = codes[j] == i ? i + 1 : i;
      const uint64_t flipped = (codes[j] ^ other) << (j * bits % 32);
      changes[j * bits / 32].push_back(static_cast<uint32_t>(flipped));
      if (flipped >> 32 != 0)
        changes[j * bits / 32 + 1].push_back(static_cast<uint32_t>(flipped >> 32));
    }
    for (const auto& [word, flips] : changes) {
      const size_t element = index * words + word;
      const auto expected = static_cast<uint32_t>(tile->value[element]);
      Alternative alternative = {.element = static_cast<int64_t>(element),
                                 .value = 0,
                                 .any = false,
                                 .reason = kNearThreshold};
      if (flips.size() > 4) {
        for (const uint32_t flip : flips) alternative.free_bits |= flip;
        tile->alternatives.push_back(alternative);
        continue;
      }
      for (uint32_t chosen = 1; chosen < 1u << flips.size(); ++chosen) {
        uint32_t flip = 0;
        for (size_t k = 0; k < flips.size(); ++k) flip ^= (chosen >> k & 1) != 0 ? flips[k] : 0;
        if (flip == 0) continue;
        alternative.value = expected ^ flip;
        tile->alternatives.push_back(alternative);
      }
    }
  }

  void BoundGroup(const TurboquantGroup& group, const RoundTripQuestion& question,
                  std::span<const double> given, size_t first, RowBound* bound) const {
    const size_t d = group.d();
    const std::vector<float> x = RoundedTo(format_.row_type, given);
    const bool finite = AllFinite(x);
    ExactGroup exact;
    if (finite) exact = Evaluate(group, x);
    const double largest_norm = exact.norm * (1 + exact.norm_error);
    if (!finite || largest_norm >= OverflowThreshold(DType::kFloat16)) {
      for (size_t i = first; i < first + d; ++i) {
        bound->undefined[i] = !finite;
        bound->overflows[i] = true;
        bound->total[i] = kNoBound;
      }
      return;
    }
    const double root = std::sqrt(static_cast<double>(d));
    const double levels = std::log2(static_cast<double>(d));
    std::vector<double> c(d);
    double sum = 0, square = 0, moved = 0;
    for (size_t j = 0; j < d; ++j) {
      const double y = exact.y[j];
      const size_t i = NearestThreshold(group.thresholds(), y);
      c[j] = static_cast<double>(group.centroids()[group.CodeOf(y)]);
      sum += std::fabs(c[j]);
      square += c[j] * c[j];
      const double error =
          kTurboquantBand / root + kUnit * (levels + 4) + std::fabs(y) * exact.norm_error;
      if (std::fabs(y - static_cast<double>(group.thresholds()[i])) <= error) {
        moved += static_cast<double>(group.centroids()[i + 1]) -
                 static_cast<double>(group.centroids()[i]);
      }
    }
    const bool corrected = question.profile.turboquant == TurboquantWriter::kVllmNc;
    const double inner = corrected ? std::sqrt(square) : 1;
    RotateBack<double>(group.signs(), c);
    const std::array<double, 2> norms = {AsHalf(exact.norm * (1 - exact.norm_error)),
                                         AsHalf(largest_norm)};
    const double norm = norms[1];
    std::vector<double> error(d), signs(d);
    bool shows = false;
    for (size_t i = 0; i < d; ++i) {
      const double q = c[i] / inner;
      const double x_i = static_cast<double>(x[i]);
      error[i] = std::max(std::fabs(x_i - norms[0] * q), std::fabs(x_i - norms[1] * q));
      signs[i] = x_i - norm * q > 0 ? 1 : -1;
      shows = shows || x_i == norm * q;
      std::array<double, kTurboquantTerms> terms{};
      terms[kOfRow] = std::fabs(given[i] - x_i);
      terms[kOfCodes] = error[i] + kOwnRounding * norm;
      terms[kOfTies] = norm * moved / root / inner;
      if (corrected) terms[kOfTies] += norm * moved * std::fabs(q) / inner;
      terms[kOfDecoder] = norm * (sum + moved) / root / inner * DecoderRoundings(d, corrected) *
                              kUnit * (1 + 0x1p-10) +
                          0x1p-148;
      AddElement(question, given[i], terms, first + i, bound);
    }
    // A single wrong code moves every element by its own sign of the rotation: it passes only where
    // all errors have that sign, or the opposite.
    HadamardSigns(group, &signs);
    const double largest =
        std::fabs(*std::max_element(signs.begin(), signs.end(), [](double a, double b) {
          return std::fabs(a) < std::fabs(b);
        }));
    if (!shows && largest == static_cast<double>(d)) return;
    double gap = kNoBound;
    for (size_t i = 0; i + 1 < group.centroids().size(); ++i) {
      gap = std::min(gap, static_cast<double>(group.centroids()[i + 1]) -
                              static_cast<double>(group.centroids()[i]));
    }
    // A changed code changes the norm that vllm_nc divides by, of which nothing is known here.
    if (corrected) return;
    for (size_t i = 0; i < d; ++i) {
      const double beside = bound->total[first + i] - error[i];
      bound->wrong_code[first + i] = std::max(0.0, error[i] + norms[0] * gap / root - beside);
    }
  }

  static void HadamardSigns(const TurboquantGroup& group, std::vector<double>* signs) {
    for (size_t i = 0; i < signs->size(); ++i) (*signs)[i] *= static_cast<double>(group.signs()[i]);
    HadamardInOrder<double>(*signs);
  }

  void AddElement(const RoundTripQuestion& question, double given,
                  std::array<double, kTurboquantTerms> terms, size_t i, RowBound* bound) const {
    const auto total = [&] {
      double sum = 0;
      for (const double term : terms) sum += term;
      return sum * (1 + kOwnRounding);
    };
    bool overflows = false;
    const auto rounded_to = [&](DType type) {
      const double largest = std::fabs(given) + total();
      overflows = overflows || largest >= OverflowThreshold(type);
      if (!overflows) terms[kOfRow] += HalfSpacing(type, largest);
    };
    if (question.decode != DecodeRounding::kExact && format_.row_type != DType::kFloat32) {
      rounded_to(format_.row_type);
    }
    const DType holds =
        question.decode == DecodeRounding::kExact ? DType::kFloat32 : format_.row_type;
    if (question.read.has_value() && !Holds(*question.read, holds)) rounded_to(*question.read);
    bound->overflows[i] = overflows;
    if (overflows) {
      bound->total[i] = kNoBound;
      return;
    }
    for (size_t term = 0; term < kTurboquantTerms; ++term) bound->terms[term][i] = terms[term];
    bound->total[i] = total();
  }

  TurboquantFormat format_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const TurboquantFormat& format) {
  return std::make_unique<TurboquantArithmetic>(format);
}

}  // namespace kvcheck
