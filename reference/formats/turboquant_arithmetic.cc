// Rows of turboquant groups: planes, what the f32 of the writers leaves open, and the bound of a
// round trip. Derivations: formats.md, section E.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "reference/formats/affine.h"
#include "reference/formats/format_arithmetic.h"
#include "reference/formats/ggml_blocks.h"
#include "reference/formats/plain.h"
#include "reference/formats/turboquant.h"
#include "reference/formats/turboquant_bound.h"
#include "reference/formats/turboquant_codebook.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/formats/turboquant_writers.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

enum TurboquantPlane : size_t { kWords, kNorms };
enum TurboquantTerm { kOfRow, kOfCodes, kOfTies, kOfDecoder, kTurboquantTerms };

// Of a value's terms: sums, three products, and where the centroids are divided by their norm the
// roundings of that.
double DecoderRoundings(size_t d, bool corrected) {
  return std::log2(static_cast<double>(d)) + 3 + (corrected ? static_cast<double>(d) / 2 + 4 : 0);
}

class TurboquantRows : public RowArithmetic {
 public:
  TurboquantRows(const TurboquantFormat& format, TurboquantWriter writer, TurboquantBasis basis)
      : format_(format),
        group_(format, writer, basis),
        codes_(group_.d()),
        words_(group_.d() * static_cast<size_t>(format.bits) / 32),
        values_(group_.d()) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    for (size_t g = 0; g * group_.d() < x.size(); ++g) {
      const std::vector<float> of_group =
          RoundedFloats(format_.row_type, x.subspan(g * group_.d(), group_.d()));
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
  explicit TurboquantArithmetic(const TurboquantFormat& format,
                                TurboquantBasis basis = TurboquantBasis::kSignsFirst)
      : format_(format), basis_(basis) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t) const override {
    return std::make_unique<TurboquantRows>(format_, profile.turboquant, basis_);
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
  std::vector<OtherWriter> OtherWriters() const override {
    return OtherTurboquantWriters(format_, OtherSigns(format_.seed, "signs", true),
                                  [](const TurboquantFormat& other, TurboquantBasis basis) {
                                    return std::make_shared<const TurboquantArithmetic>(other,
                                                                                        basis);
                                  });
  }
  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    const TurboquantGroup group(format_, profile.turboquant, basis_);
    for (size_t first = 0; first < x.size(); first += group.d()) {
      const std::vector<float> values =
          RoundedFloats(format_.row_type, x.subspan(first, group.d()));
      const size_t index = first / group.d();
      if (!HasHalfNorm(values)) {
        LeaveOpen(index, tiles);
        continue;
      }
      const ExactTurboquant exact = EvaluateTurboquant(group, values);
      AddNormAlternatives(exact, index, &(*tiles)[kNorms]);
      AddCodeAlternatives(group, format_.bits, values, exact, index * WordsOfGroup(),
                          &(*tiles)[kWords]);
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
      const double of_group = 2 * norm * sum / std::sqrt(static_cast<double>(d)) * roundings *
                                  kFloatUnit * (1 + 0x1p-10) +
                              0x1p-147;
      for (size_t i = g * d; i < (g + 1) * d; ++i) {
        bound[i] = TurboquantDecodeBound(format_.row_type, y[i], of_group);
      }
    }
  }

 private:
  size_t WordsOfGroup() const {
    return static_cast<size_t>(format_.group_size) * static_cast<size_t>(format_.bits) / 32;
  }

  void LeaveOpen(size_t index, std::vector<ExpectedTile>* tiles) const {
    AddMeaningless(index * WordsOfGroup(), WordsOfGroup(), &(*tiles)[kWords]);
    AddMeaningless(index, 1, &(*tiles)[kNorms]);
  }

  void BoundGroup(const TurboquantGroup& group, const RoundTripQuestion& question,
                  std::span<const double> given, size_t first, RowBound* bound) const {
    const size_t d = group.d();
    const std::vector<float> x = RoundedFloats(format_.row_type, given);
    const ExactTurboquant exact = EvaluateTurboquant(group, x);
    if (MarkWithoutBound(x, exact, first, bound)) return;
    const double root = std::sqrt(static_cast<double>(d));
    const ExactCodes codes = CodesOf(group, exact);
    const double sum = codes.sum, moved = codes.Moved();
    std::vector<double> c = codes.centroids;
    const bool corrected = question.profile.turboquant == TurboquantWriter::kVllmNc;
    const double inner = corrected ? std::sqrt(codes.square) : 1;
    RotateBack<double>(group.signs(), c);
    const std::array<double, 2> norms = {AsHalf(exact.norm * (1 - exact.norm_error)),
                                         AsHalf(exact.norm * (1 + exact.norm_error))};
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
      terms[kOfCodes] = error[i] + kTurboquantRounding * norm;
      terms[kOfTies] = norm * moved / root / inner;
      if (corrected) terms[kOfTies] += norm * moved * std::fabs(q) / inner;
      terms[kOfDecoder] = norm * (sum + moved) / root / inner * DecoderRoundings(d, corrected) *
                              kFloatUnit * (1 + 0x1p-10) +
                          0x1p-148;
      AddTurboquantElement(question, format_.row_type, given[i], terms, first + i, bound);
    }
    // A single wrong code moves every element by its own sign of the rotation: it passes only where
    // all errors have that sign, or the opposite.
    HadamardSigns(group, &signs);
    const double largest =
        std::fabs(*std::max_element(signs.begin(), signs.end(), [](double a, double b) {
          return std::fabs(a) < std::fabs(b);
        }));
    if (!shows && largest == static_cast<double>(d)) return;
    double gap = kTurboquantNoBound;
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

  TurboquantFormat format_;
  TurboquantBasis basis_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const TurboquantFormat& format) {
  return std::make_unique<TurboquantArithmetic>(format);
}

}  // namespace kvcheck
