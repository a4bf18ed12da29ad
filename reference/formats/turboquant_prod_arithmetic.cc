// Rows of turboquant's inner-product codec: planes, what the f32 of the writers leaves open, and
// the bound of a round trip. Derivations: formats.md, section E.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "reference/formats/affine.h"
#include "reference/formats/format_arithmetic.h"
#include "reference/formats/ggml_blocks.h"
#include "reference/formats/turboquant_bound.h"
#include "reference/formats/turboquant_prod.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/formats/turboquant_writers.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

enum ProdPlane : size_t { kWords, kNorms, kResidualNorms };
enum ProdTerm { kOfRow, kOfCodes, kOfTies, kOfSigns, kOfDecoder, kProdTerms };

// What the factor (1 + 2^-10) covers: products of roundings, and the evaluation in double.
constexpr double kSecondOrder = 1 + 0x1p-10;
constexpr double kSmallest = 0x1p-149;  // f32

// Where the words of a group are in a row of `groups` of them: codes of all, then signs of all.
struct ProdWords {
  size_t codes = 0;  // words of a group
  size_t signs = 0;
  size_t groups = 0;

  ProdWords(const TurboquantProdFormat& format, size_t row_elements)
      : codes(static_cast<size_t>(format.group_size) * static_cast<size_t>(format.bits - 1) / 32),
        signs(static_cast<size_t>(format.group_size) / 32),
        groups(row_elements / static_cast<size_t>(format.group_size)) {}
  size_t OfRow() const { return groups * (codes + signs); }
  size_t FirstCode(size_t group) const { return group * codes; }
  size_t FirstSign(size_t group) const { return groups * codes + group * signs; }
};

TurboquantProdGroup ReadGroup(const TurboquantProdFormat& format, const ProdWords& words,
                              RowPlanesView stored, size_t g) {
  const auto d = static_cast<size_t>(format.group_size);
  TurboquantProdGroup group;
  const auto unpack = [&](size_t first, size_t count, int bits) {
    std::vector<uint32_t> of_group(count);
    std::memcpy(of_group.data(), stored[kWords] + first * sizeof(uint32_t),
                count * sizeof(uint32_t));
    std::vector<uint8_t> codes(d);
    UnpackCodes(of_group, bits, codes);
    return codes;
  };
  if (format.bits > 1) group.codes = unpack(words.FirstCode(g), words.codes, format.bits - 1);
  group.signs = unpack(words.FirstSign(g), words.signs, 1);
  group.norm = static_cast<float>(ReadHalf(stored[kNorms] + 2 * g));
  group.residual_norm = static_cast<float>(ReadHalf(stored[kResidualNorms] + 2 * g));
  return group;
}

void WriteGroup(const TurboquantProdFormat& format, const ProdWords& words,
                const TurboquantProdGroup& group, RowPlanes stored, size_t g) {
  const auto pack = [&](std::span<const uint8_t> codes, int bits, size_t first, size_t count) {
    std::vector<uint32_t> of_group(count);
    PackCodes(codes, bits, of_group);
    std::memcpy(stored[kWords] + first * sizeof(uint32_t), of_group.data(),
                count * sizeof(uint32_t));
  };
  if (format.bits > 1) pack(group.codes, format.bits - 1, words.FirstCode(g), words.codes);
  pack(group.signs, 1, words.FirstSign(g), words.signs);
  WriteHalf(group.norm, stored[kNorms] + 2 * g);
  WriteHalf(group.residual_norm, stored[kResidualNorms] + 2 * g);
}

class ProdRows : public RowArithmetic {
 public:
  explicit ProdRows(const TurboquantProdFormat& format)
      : format_(format), prod_(format), values_(prod_.d()) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    const ProdWords words(format_, x.size());
    for (size_t g = 0; g < words.groups; ++g) {
      const std::vector<float> of_group =
          RoundedFloats(format_.row_type, x.subspan(g * prod_.d(), prod_.d()));
      WriteGroup(format_, words, prod_.Encode(of_group), stored, g);
    }
  }
  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    const ProdWords words(format_, hi.size());
    for (size_t g = 0; g < words.groups; ++g) {
      prod_.Decode(ReadGroup(format_, words, stored, g), values_);
      std::copy(values_.begin(), values_.end(),
                hi.begin() + static_cast<std::ptrdiff_t>(g * prod_.d()));
    }
    std::fill(lo.begin(), lo.end(), 0.0);
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    DecodeExact(stored, out, {});
    RoundAll(out, format_.row_type);
  }

 private:
  TurboquantProdFormat format_;
  TurboquantProd prod_;
  std::vector<float> values_;
};

// A group of finite values in double, and how far the f32 of a writer may be from it.
struct ExactProd {
  ExactTurboquant exact;
  ExactCodes codes;                    // none of one bit
  std::vector<double> read;            // Q(u)
  std::vector<double> projected;       // S r
  std::vector<double> error;           // of each of these
  double norm_low = 0, norm_high = 0;  // within which the norm of r is computed
  double levels = 0;                   // of butterflies: log2 d; 0 where there are no codes

  bool IsOpen(size_t j) const { return error[j] > 0 && std::fabs(projected[j]) <= error[j]; }
  double Sign(size_t j) const { return projected[j] >= 0 ? 1 : -1; }
};

// What the open codes may move the projection j of the residual by: of each the gap times the
// column of S that its coordinate has in the basis of the codes.
double MovedProjection(const TurboquantProd& prod, const ExactCodes& codes, size_t j) {
  if (codes.open.empty()) return 0;
  const auto row = prod.projection().subspan(j * prod.d(), prod.d());
  std::vector<double> rotated(row.begin(), row.end());
  Rotate<double>(prod.mse()->signs(), rotated);
  double moved = 0;
  for (const OpenCode& open : codes.open) moved += open.gap * std::fabs(rotated[open.coordinate]);
  return moved;
}

// stored: the codes, where they are known, so that none is open; else nullptr.
ExactProd Evaluate(const TurboquantProd& prod, std::span<const float> x,
                   const std::vector<uint8_t>* stored = nullptr) {
  const double d = static_cast<double>(prod.d());
  ExactProd of;
  if (prod.mse()) {
    of.exact = EvaluateTurboquant(*prod.mse(), x);
    of.codes = stored == nullptr ? CodesOf(*prod.mse(), of.exact, ZerosAreExact(x))
                                 : CodesAs(*prod.mse(), *stored);
    of.read = of.codes.centroids;
    RotateBack<double>(prod.mse()->signs(), of.read);
    of.levels = std::log2(d);
  } else {
    of.exact = EvaluateNorm(x);
    of.exact.unit.assign(x.begin(), x.end());
    const double divisor = std::max(of.exact.norm, static_cast<double>(1e-6f));
    for (double& value : of.exact.unit) value /= divisor;
    of.read.assign(x.size(), 0.0);
  }
  const double moved = of.codes.Moved();
  const double of_unit = of.exact.norm_error + kFloatUnit;
  const double of_read = (of.levels + 2) * kFloatUnit;
  std::vector<double> residual(prod.d()), weight(prod.d());
  double unit_square = 0, square = 0, moved_square = 0, smallest = 0;
  for (size_t i = 0; i < prod.d(); ++i) {
    const double u = of.exact.unit[i];
    residual[i] = u - of.read[i];
    unit_square += u * u;
    square += residual[i] * residual[i];
    weight[i] = (d + 3) * kFloatUnit * (std::fabs(residual[i]) + moved / std::sqrt(d)) +
                of_unit * std::fabs(u) + of_read * (of.codes.sum + moved) / std::sqrt(d);
    // A quotient, a difference and each product may be subnormal.
    if (residual[i] != 0) {
      weight[i] += kSmallest;
      smallest += 2 * kSmallest;
    }
  }
  for (size_t j = 0; j < prod.d(); ++j) {
    double sum = 0, error = 0;
    for (size_t i = 0; i < prod.d(); ++i) {
      const auto s = static_cast<double>(prod.projection()[j * prod.d() + i]);
      sum += s * residual[i];
      error += std::fabs(s) * weight[i];
    }
    of.projected.push_back(sum);
    of.error.push_back(error * kSecondOrder + smallest + MovedProjection(prod, of.codes, j));
  }
  for (const OpenCode& open : of.codes.open) {
    moved_square += 2 * open.gap * (open.error + 2 * kFloatUnit);
  }
  const double error = kSecondOrder * (of_unit * std::sqrt(unit_square) +
                                       of_read * (std::sqrt(of.codes.square) + moved) +
                                       (d / 2 + 3) * kFloatUnit * std::sqrt(square + moved_square));
  of.norm_low = std::max(0.0, std::sqrt(std::max(0.0, square - moved_square)) - error);
  of.norm_high = std::sqrt(square + moved_square) + error;
  return of;
}

// A group of which some code is open: where its words are in a tile, and what was encoded.
struct OpenGroup {
  size_t first_code = 0;
  size_t first_sign = 0;
  std::vector<float> x;
};

// Signs that f32 may give either way, in the words from first_word on.
void AddSignAlternatives(const ExactProd& of, size_t words, size_t first_word, ExpectedTile* tile) {
  for (size_t word = 0; word < words; ++word) {
    Alternative alternative = {.element = static_cast<int64_t>(first_word + word),
                               .value = 0,
                               .any = false,
                               .reason = kNearZeroProjection};
    for (size_t bit = 0; bit < 32; ++bit) {
      if (of.IsOpen(32 * word + bit)) alternative.free_bits |= uint64_t{1} << bit;
    }
    if (alternative.free_bits != 0) tile->alternatives.push_back(alternative);
  }
}

// The codes of a group as they are stored, where each is one of those that encoding leaves open;
// a code that is none fails by itself, and the signs are then those of the right one.
std::vector<uint8_t> AdmissibleCodes(const TurboquantProd& prod, std::span<const float> x,
                                     std::span<const uint8_t> stored) {
  std::vector<uint8_t> codes(prod.d());
  prod.mse()->Encode(x, codes);
  for (const OtherCode& other :
       OtherCodes(*prod.mse(), x, EvaluateTurboquant(*prod.mse(), x), codes)) {
    if (stored[other.coordinate] == other.code) codes[other.coordinate] = other.code;
  }
  return codes;
}

// The signs of groups with open codes, given the codes that were stored.
void ExpectSignsGiven(const TurboquantProdFormat& format, const ProdWords& words,
                      const std::vector<OpenGroup>& groups, std::span<const double> got,
                      ExpectedTile* tile) {
  const TurboquantProd prod(format);
  for (const OpenGroup& group : groups) {
    std::vector<uint32_t> code_words;
    for (size_t word = 0; word < words.codes; ++word) {
      code_words.push_back(static_cast<uint32_t>(got[group.first_code + word]));
    }
    std::vector<uint8_t> stored(prod.d());
    UnpackCodes(code_words, format.bits - 1, stored);
    const std::vector<uint8_t> codes = AdmissibleCodes(prod, group.x, stored);
    const ExactProd of = Evaluate(prod, group.x, &codes);
    for (size_t word = 0; word < words.signs; ++word) {
      uint32_t signs = 0;
      for (size_t bit = 0; bit < 32; ++bit) {
        signs |= of.Sign(32 * word + bit) > 0 ? 1u << bit : 0u;
      }
      tile->value[group.first_sign + word] = signs;
    }
    AddSignAlternatives(of, words.signs, group.first_sign, tile);
  }
  std::sort(tile->alternatives.begin(), tile->alternatives.end(),
            [](const Alternative& a, const Alternative& b) { return a.element < b.element; });
}

// sqrt(pi/2)/d.
double SignScale(const TurboquantProd& prod) {
  return std::sqrt(std::numbers::pi / 2) / static_cast<double>(prod.d());
}

// Of each channel the sum of |S| over coordinates.
std::vector<double> ColumnSums(const TurboquantProd& prod) {
  std::vector<double> sums(prod.d(), 0.0);
  for (size_t j = 0; j < prod.d(); ++j) {
    for (size_t i = 0; i < prod.d(); ++i) {
      sums[i] += std::fabs(static_cast<double>(prod.projection()[j * prod.d() + i]));
    }
  }
  return sums;
}

// How far the f32 of a decoder may be off, over the norm: of the codes log2 d levels of sums, two
// products, a sum and a product; of the signs d - 1 sums of entries that are a unit off, five
// products and sums.
double DecoderError(const TurboquantProd& prod, double centroids, double of_signs) {
  const double d = static_cast<double>(prod.d());
  const double of_codes = prod.mse() ? (std::log2(d) + 4) * centroids / std::sqrt(d) : 0;
  return (of_codes + (d + 6) * of_signs) * kFloatUnit * kSecondOrder;
}

class TurboquantProdArithmetic : public FormatArithmetic {
 public:
  explicit TurboquantProdArithmetic(const TurboquantProdFormat& format) : format_(format) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile&, int64_t) const override {
    return std::make_unique<ProdRows>(format_);
  }
  std::vector<std::string> Terms() const override {
    return {"row rounding", "codes, signs and norms", "codes at thresholds", "signs near zero",
            "decoder arithmetic"};
  }
  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const TurboquantProd prod(format_);
    const std::vector<double> columns = ColumnSums(prod);
    for (size_t first = 0; first < x.size(); first += prod.d()) {
      BoundGroup(prod, columns, question, x.subspan(first, prod.d()), first, bound);
    }
  }
  std::vector<ProfileChange> OtherProfiles(const Profile&) const override { return {}; }
  std::vector<OtherWriter> OtherWriters() const override {
    return OtherTurboquantWriters(format_, OtherSigns(format_.seed, "signs and projection", false),
                                  [](const TurboquantProdFormat& other, TurboquantBasis) {
                                    return std::make_shared<const TurboquantProdArithmetic>(other);
                                  });
  }
  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    AddTileAlternatives(profile, x, static_cast<int64_t>(x.size()), tiles);
  }
  void AddTileAlternatives(const Profile&, std::span<const double> x, int64_t row_elements,
                           std::vector<ExpectedTile>* tiles) const override {
    const auto length = static_cast<size_t>(row_elements);
    if (length == 0) return;
    const TurboquantProd prod(format_);
    const ProdWords words(format_, length);
    std::vector<OpenGroup> open;
    for (size_t row = 0; (row + 1) * length <= x.size(); ++row) {
      for (size_t g = 0; g < words.groups; ++g) {
        const auto given = x.subspan(row * length + g * prod.d(), prod.d());
        AddGroupAlternatives(prod, words, given, row, g, tiles, &open);
      }
    }
    if (open.empty()) return;
    (*tiles)[kWords].given = [format = format_, words, open = std::move(open)](
                                 std::span<const double> got, ExpectedTile* tile) {
      ExpectSignsGiven(format, words, open, got, tile);
    };
  }
  // decode=exact names no order of sums.
  bool LeavesDecodeOpen(const Profile& profile) const override {
    return profile.decode == DecodeRounding::kExact;
  }
  // Two orders, each within the decoder's term of the bound, and a rounding to the row type of
  // each.
  void DecodeBound(const Profile&, RowPlanesView stored, std::span<const double> y,
                   std::span<double> bound) const override {
    const TurboquantProd prod(format_);
    const ProdWords words(format_, y.size());
    const std::vector<double> columns = ColumnSums(prod);
    for (size_t g = 0; g < words.groups; ++g) {
      const TurboquantProdGroup group = ReadGroup(format_, words, stored, g);
      double centroids = 0;
      for (const uint8_t code : group.codes) {
        centroids += std::fabs(static_cast<double>(prod.mse()->centroids()[code]));
      }
      const double norm = std::fabs(static_cast<double>(group.norm));
      const double factor = SignScale(prod) * std::fabs(static_cast<double>(group.residual_norm));
      for (size_t i = 0; i < prod.d(); ++i) {
        const size_t at = g * prod.d() + i;
        const double error =
            2 * norm * DecoderError(prod, centroids, factor * columns[i]) + 0x1p-147;
        bound[at] = TurboquantDecodeBound(format_.row_type, y[at], error);
      }
    }
  }

 private:
  // open: gains the group where a code of it is, on which its signs then depend.
  void AddGroupAlternatives(const TurboquantProd& prod, const ProdWords& words,
                            std::span<const double> given, size_t row, size_t g,
                            std::vector<ExpectedTile>* tiles, std::vector<OpenGroup>* open) const {
    const std::vector<float> x = RoundedFloats(format_.row_type, given);
    const size_t first_code = row * words.OfRow() + words.FirstCode(g);
    const size_t first_sign = row * words.OfRow() + words.FirstSign(g);
    const size_t index = row * words.groups + g;
    if (!HasHalfNorm(x)) {
      AddMeaningless(first_code, words.codes, &(*tiles)[kWords]);
      AddMeaningless(first_sign, words.signs, &(*tiles)[kWords]);
      AddMeaningless(index, 1, &(*tiles)[kNorms]);
      AddMeaningless(index, 1, &(*tiles)[kResidualNorms]);
      return;
    }
    const ExactProd of = Evaluate(prod, x);
    AddNormAlternatives(of.exact, index, &(*tiles)[kNorms]);
    AddHalfAlternatives(of.norm_low, of.norm_high, kNearHalfResidual, index,
                        &(*tiles)[kResidualNorms]);
    if (prod.mse()) {
      AddCodeAlternatives(*prod.mse(), format_.bits - 1, x, of.exact, first_code,
                          &(*tiles)[kWords]);
    }
    if (of.codes.open.empty()) {
      AddSignAlternatives(of, words.signs, first_sign, &(*tiles)[kWords]);
    } else {
      open->push_back({first_code, first_sign, x});
    }
  }

  // The values x_i - n (Q_i + factor a_i) may have, over both norms' ends.
  struct ErrorRange {
    double low, high;
    double Largest() const { return std::max(std::fabs(low), std::fabs(high)); }
    double Width() const { return high - low; }
    // Whether a value that is moved by this sign leaves x behind.
    bool MovesAway(double sign) const { return sign > 0 ? high <= 0 : low >= 0; }
  };

  // columns: ColumnSums.
  void BoundGroup(const TurboquantProd& prod, const std::vector<double>& columns,
                  const RoundTripQuestion& question, std::span<const double> given, size_t first,
                  RowBound* bound) const {
    const size_t d = prod.d();
    const std::vector<float> x = RoundedFloats(format_.row_type, given);
    if (MarkWithoutBound(x, EvaluateNorm(x), first, bound)) return;
    const ExactProd of = Evaluate(prod, x);
    const std::array<double, 2> norms = {AsHalf(of.exact.norm * (1 - of.exact.norm_error)),
                                         AsHalf(of.exact.norm * (1 + of.exact.norm_error))};
    const std::array<double, 2> factors = {SignScale(prod) * AsHalf(of.norm_low),
                                           SignScale(prod) * AsHalf(of.norm_high)};
    std::vector<double> signed_sums(d, 0.0), open_sums(d, 0.0);
    for (size_t j = 0; j < d; ++j) {
      for (size_t i = 0; i < d; ++i) {
        const auto s = static_cast<double>(prod.projection()[j * d + i]);
        signed_sums[i] += of.Sign(j) * s;
        if (of.IsOpen(j)) open_sums[i] += std::fabs(s);
      }
    }
    const double norm = norms[1], moved = of.codes.Moved();
    std::vector<ErrorRange> errors;
    for (size_t i = 0; i < d; ++i) {
      const double x_i = static_cast<double>(x[i]);
      ErrorRange error = {kTurboquantNoBound, -kTurboquantNoBound};
      for (const double n : norms) {
        for (const double factor : factors) {
          const double e = x_i - n * (of.read[i] + factor * signed_sums[i]);
          error = {std::min(error.low, e), std::max(error.high, e)};
        }
      }
      errors.push_back(error);
      std::array<double, kProdTerms> terms{};
      terms[kOfRow] = std::fabs(given[i] - x_i);
      terms[kOfCodes] = error.Largest() + kTurboquantRounding * norm;
      terms[kOfTies] = norm * moved / std::sqrt(static_cast<double>(d));
      terms[kOfSigns] = norm * factors[1] * 2 * open_sums[i];
      terms[kOfDecoder] =
          norm * DecoderError(prod, of.codes.sum + moved, factors[1] * columns[i]) + 0x1p-148;
      AddTurboquantElement(question, format_.row_type, given[i], terms, first + i, bound);
    }
    NameWrongCodes(prod, of, errors, norms[0], factors[0], first, bound);
  }

  // One wrong sign, or one wrong code, moves every element by its own part of S, or of the
  // rotation; it shows where some element that is moved away from x leaves its bound, though what
  // is beside the error were used up on the other side.
  static void NameWrongCodes(const TurboquantProd& prod, const ExactProd& of,
                             const std::vector<ErrorRange>& errors, double norm, double factor,
                             size_t first, RowBound* bound) {
    const size_t d = prod.d();
    std::vector<double> hidden(d);
    for (size_t i = 0; i < d; ++i) {
      hidden[i] = errors[i].Width() + 2 * (bound->total[first + i] - errors[i].Largest());
    }
    double shows = kTurboquantNoBound;
    for (size_t j = 0; j < d; ++j) {
      double most = 0;
      for (size_t i = 0; i < d; ++i) {
        const auto s = static_cast<double>(prod.projection()[j * d + i]);
        if (!errors[i].MovesAway(-of.Sign(j) * s)) continue;
        most = std::max(most, 2 * norm * factor * std::fabs(s) - hidden[i]);
        if (most >= shows) break;
      }
      shows = std::min(shows, most);
    }
    if (prod.mse()) {
      const auto centroids = prod.mse()->centroids();
      double gap = kTurboquantNoBound;
      for (size_t i = 0; i + 1 < centroids.size(); ++i) {
        gap = std::min(gap,
                       static_cast<double>(centroids[i + 1]) - static_cast<double>(centroids[i]));
      }
      const double move = norm * gap / std::sqrt(static_cast<double>(d));
      for (size_t k = 0; k < d; ++k) {
        for (const double direction : {1.0, -1.0}) {
          double most = 0;
          for (size_t i = 0; i < d; ++i) {
            const double parity = std::popcount(i & k) % 2 == 0 ? 1 : -1;
            const double sign = direction * parity * static_cast<double>(prod.mse()->signs()[i]);
            if (errors[i].MovesAway(sign)) most = std::max(most, move - hidden[i]);
            if (most >= shows) break;
          }
          shows = std::min(shows, most);
        }
      }
    }
    if (!(shows > 0)) return;
    for (size_t i = 0; i < d; ++i) bound->wrong_code[first + i] = bound->total[first + i] + shows;
  }

  TurboquantProdFormat format_;
};

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const TurboquantProdFormat& format) {
  return std::make_unique<TurboquantProdArithmetic>(format);
}

}  // namespace kvcheck
