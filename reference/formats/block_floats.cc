#include "reference/formats/block_floats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The formulas are evaluated in double with fewer than 2^6 operations on non-negative terms: their
// own rounding stays below 2^-46 of the result, which this covers.
constexpr double kEvaluation = 1.0 + 0x1p-40;

enum FloatTerm { kRow, kCode, kScale, kProduct, kEncoder, kFloatTerms };

std::vector<double> Rounded(std::span<const double> x, DType type) {
  std::vector<double> rounded(x.begin(), x.end());
  RoundAll(rounded, type);
  return rounded;
}

bool IsFinite(std::span<const double> x) {
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
}

// From here on f32 has no odd numbers, and distances from elements are rounded; below, 6 is the
// nearest one of all from 5 on.
constexpr double kRoundedDistances = 0x1p24;

// The first element of e2m1 from 0 on whose distance from a magnitude is the least in f32.
unsigned FirstNearestInFloat32(double size) {
  unsigned nearest = 0;
  double least = ToFloat32(size);
  for (unsigned code = 1; code < 8; ++code) {
    const double distance =
        std::fabs(ToFloat32(size - Decode(DType::kFloat4E2M1FN, uint64_t{code})));
    if (!(distance < least)) continue;
    least = distance;
    nearest = code;
  }
  return nearest;
}

bool HoldsTwo(const BlockFloats& format) { return format.element == DType::kFloat4E2M1FN; }

// Of the value of a magnitude t: half the distance of the elements on both sides of it, but no more
// than t, since 0 is one of them; beyond the largest element, the distance to that.
double HalfGap(DType element, double t) {
  const FloatType& type = FloatTypeOf(element);
  if (t >= type.largest_finite) return t - type.largest_finite;
  return std::min(t, HalfSpacing(element, t));
}

// How near the second nearest element comes to a magnitude t.
double NearestOther(DType element, double t) {
  const FloatType& type = FloatTypeOf(element);
  const double nearest = RoundTo(element, t, {.overflow = Overflow::kSaturate});
  const double spacing = 2 * HalfSpacing(element, nearest);
  int exponent = 0;
  // Below a power of two elements are half as far apart.
  const bool is_edge = std::frexp(nearest, &exponent) == 0.5 && nearest > type.smallest_normal;
  const double below = nearest - (is_edge ? spacing / 2 : spacing);
  const double above = nearest + spacing;
  return nearest >= type.largest_finite ? std::fabs(t - below)
                                        : std::min(std::fabs(t - below), std::fabs(t - above));
}

class BlockFloatRows : public RowArithmetic {
 public:
  BlockFloatRows(const BlockFloats& format, const Profile& profile)
      : format_(format), profile_(profile) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    const std::vector<double> rounded = Rounded(x, format_.row);
    std::vector<uint8_t> codes(x.size());
    const bool is_power = format_.scale == DType::kFloat8E8M0FNU;
    for (size_t first = 0; first < x.size(); first += format_.block) {
      const auto block = std::span(rounded).subspan(first, format_.block);
      std::byte* scale = stored[1] + first / format_.block;
      // The NaN of either type of scales: undefined, and not to be lost.
      *scale = std::byte{static_cast<uint8_t>(is_power ? 0xff : 0x7f)};
      if (!IsFinite(block)) continue;
      const BlockScale chosen = format_.scales(format_, profile_, block).front();
      *scale = static_cast<std::byte>(chosen.byte);
      for (size_t i = 0; i < block.size(); ++i) {
        const double position = format_.position(format_, profile_, chosen, block[i]);
        codes[first + i] = format_.code(format_, profile_, position);
      }
    }
    for (size_t i = 0; i < codes.size(); ++i) {
      if (!HoldsTwo(format_)) {
        stored[0][i] = static_cast<std::byte>(codes[i]);
      } else if (i % 2 == 0) {
        stored[0][i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
      }
    }
  }

  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    for (size_t i = 0; i < hi.size(); ++i) hi[i] = Element(stored, i) * Step(stored, i);
    std::fill(lo.begin(), lo.end(), 0.0);
  }

  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    const bool twice = profile_.decode == DecodeRounding::kTwoRoundings;
    for (size_t i = 0; i < out.size(); ++i) {
      const double step = Step(stored, i);
      const double element = Element(stored, i);
      // A power of two is rounded to the row type; a product with a global scale to f32, as is the
      // product with the element.
      const bool is_power = format_.scale == DType::kFloat8E8M0FNU;
      if (!twice) {
        out[i] = element * step;
      } else if (is_power) {
        out[i] = element * RoundTo(format_.row, step);
      } else {
        out[i] = ToFloat32(element * ToFloat32(step));
      }
    }
    RoundAll(out, format_.row);
  }

  void ReadCodes(RowPlanesView stored, std::span<double> codes, std::span<double> scales,
                 std::span<double> biases) override {
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = Element(stored, i);
    for (size_t b = 0; b < scales.size(); ++b) {
      scales[b] = Step(stored, b * format_.block);
      biases[b] = 0;
    }
  }

 private:
  double Element(RowPlanesView stored, size_t i) const {
    const auto byte = std::to_integer<unsigned>(stored[0][HoldsTwo(format_) ? i / 2 : i]);
    return Decode(format_.element, HoldsTwo(format_) ? byte >> (4 * (i % 2)) & 15 : byte);
  }
  // Scale and global scale have 28 bits together: exact.
  double Step(RowPlanesView stored, size_t i) const {
    const auto byte = std::to_integer<uint64_t>(stored[1][i / format_.block]);
    if (byte == 255 && format_.reads_last_power != nullptr && format_.reads_last_power(profile_)) {
      return 0x1p128;
    }
    return Decode(format_.scale, byte) * format_.global_scale;
  }

  BlockFloats format_;
  Profile profile_;
};

struct ElementBound {
  std::array<double, kFloatTerms> terms{};
  double total = 0;
  double wrong_code = 0;
  double others = 0;  // roundings with which another code is read
  bool overflows = false;
};

class BlockFloatArithmetic : public FormatArithmetic {
 public:
  BlockFloatArithmetic(const BlockFloats& format, bool leaves_decode)
      : format_(format), leaves_decode_(leaves_decode) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t) const override {
    return std::make_unique<BlockFloatRows>(format_, profile);
  }

  std::vector<std::string> Terms() const override {
    return {"row rounding", "code", "scale rounding", "product rounding", "encoder arithmetic"};
  }

  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    const std::vector<double> rounded = Rounded(x, format_.row);
    for (size_t first = 0; first < x.size(); first += format_.block) {
      const auto block = std::span(rounded).subspan(first, format_.block);
      const bool is_finite = IsFinite(block);
      std::vector<BlockScale> scales;
      if (is_finite) scales = format_.scales(format_, question.profile, block);
      for (size_t i = first; i < first + format_.block; ++i) {
        ElementBound worst;
        worst.overflows = bound->undefined[i] = !is_finite;
        worst.wrong_code = kInfinity;
        for (const BlockScale& scale : scales) {
          const ElementBound one = BoundElement(question, scale, rounded[i], x[i]);
          const double wrong_code = std::min(worst.wrong_code, one.wrong_code);
          if (one.overflows || one.total >= worst.total) worst = one;
          worst.wrong_code = wrong_code;
          if (one.overflows) break;
        }
        bound->overflows[i] = worst.overflows;
        if (worst.overflows) {
          bound->total[i] = kInfinity;
          continue;
        }
        for (size_t term = 0; term < kFloatTerms; ++term) {
          bound->terms[term][i] = worst.terms[term] * kEvaluation;
        }
        bound->total[i] = worst.total * kEvaluation;
        bound->wrong_code[i] = worst.wrong_code;
      }
    }
  }

  // |element scale| of a stored value, which has no bias.
  std::vector<double> Parts(const Profile&, std::span<const double> x,
                            std::vector<double> total) const override {
    for (size_t i = 0; i < x.size(); ++i) total[i] = (std::fabs(x[i]) + total[i]) * kEvaluation;
    return total;
  }

  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    format_.add_writers(profile, &changes);
    if (leaves_decode_) {
      // What is written out is rounded: an exact decode explains nothing that these do not.
      AddChanges(profile, CodecChoice::kDecode, &changes, {"exact"});
    }
    return changes;
  }

  std::vector<Profile> UndeclaredEncoders(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    format_.add_writers(profile, &changes);
    std::vector<Profile> profiles = {profile};
    for (const ProfileChange& change : changes) profiles.push_back(change.profile);
    return profiles;
  }

  std::vector<PlaneOrder> OtherOrders(int64_t head_dim, int64_t) const override {
    return format_.orders == nullptr ? std::vector<PlaneOrder>() : format_.orders(head_dim);
  }

  void AddAlternatives(const Profile& profile, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    const std::vector<double> rounded = Rounded(x, format_.row);
    for (size_t first = 0; first < x.size(); first += format_.block) {
      const auto block = std::span(rounded).subspan(first, format_.block);
      if (!IsFinite(block)) {
        AddAny(first, tiles);
        continue;
      }
      const std::vector<BlockScale> scales = format_.scales(format_, profile, block);
      AddScales(profile, block, first, scales, tiles);
      for (size_t i = 0; i < block.size(); i += HoldsTwo(format_) ? 2 : 1) {
        AddCodes(profile, block, i, first, scales, tiles);
      }
    }
  }

 private:
  size_t CodeByte(size_t element) const { return HoldsTwo(format_) ? element / 2 : element; }

  void AddAny(size_t first, std::vector<ExpectedTile>* tiles) const {
    const auto any = [&](size_t output, size_t byte) {
      (*tiles)[output].alternatives.push_back({.element = static_cast<int64_t>(byte),
                                               .value = 0,
                                               .any = true,
                                               .reason = kNotFiniteBlock});
    };
    any(1, first / format_.block);
    for (size_t byte = CodeByte(first); byte < CodeByte(first + format_.block); ++byte) {
      any(0, byte);
    }
  }

  static void AddValue(size_t byte, double value, CodecReason reason, ExpectedTile* tile) {
    tile->alternatives.push_back(
        {.element = static_cast<int64_t>(byte), .value = value, .any = false, .reason = reason});
  }

  void AddScales(const Profile& profile, std::span<const double> block, size_t first,
                 const std::vector<BlockScale>& scales, std::vector<ExpectedTile>* tiles) const {
    const size_t at = first / format_.block;
    const bool zeros =
        std::all_of(block.begin(), block.end(), [](double value) { return value == 0; });
    // The two bytes that writers store: the smallest scale, and 1.
    if (zeros && format_.zeros_are_free(profile)) AddValue(at, 127, kScaleOfZeros, &(*tiles)[1]);
    for (size_t k = 1; k < scales.size(); ++k) {
      if (scales[k].byte == scales[0].byte) continue;
      AddValue(at, scales[k].byte, kApproximateReciprocal, &(*tiles)[1]);
    }
  }

  // Codes that an element may have under a scale, its own first.
  std::vector<uint8_t> CodesOf(const Profile& profile, const BlockScale& scale, double x) const {
    const double position = format_.position(format_, profile, scale, x);
    const double freedom = format_.position_freedom(profile);
    std::vector<uint8_t> codes = {format_.code(format_, profile, position)};
    for (const double other : {position * (1 - freedom), position * (1 + freedom)}) {
      const uint8_t code = format_.code(format_, profile, other);
      if (std::find(codes.begin(), codes.end(), code) == codes.end()) codes.push_back(code);
    }
    return codes;
  }

  // Of the byte of element i of the block, and of i + 1 where it holds two.
  void AddCodes(const Profile& profile, std::span<const double> block, size_t i, size_t first,
                const std::vector<BlockScale>& scales, std::vector<ExpectedTile>* tiles) const {
    ExpectedTile& tile = (*tiles)[0];
    const size_t byte = CodeByte(first + i);
    std::optional<unsigned> expected;
    for (const BlockScale& scale : scales) {
      const std::vector<uint8_t> low = CodesOf(profile, scale, block[i]);
      const std::vector<uint8_t> high =
          HoldsTwo(format_) ? CodesOf(profile, scale, block[i + 1]) : std::vector<uint8_t>{0};
      for (const uint8_t h : high) {
        for (const uint8_t l : low) {
          const unsigned value = HoldsTwo(format_) ? l | unsigned{h} << 4 : l;
          if (!expected) {
            expected = value;
          } else if (value != *expected) {
            AddValue(byte, value, kApproximateReciprocal, &tile);
          }
        }
      }
    }
    if (!format_.zeros_are_free(profile)) return;
    const unsigned magnitude = HoldsTwo(format_) ? 7 : 127;
    uint64_t free_bits = (*expected & magnitude) == 0 ? magnitude + 1 : 0;
    if (HoldsTwo(format_) && (*expected >> 4 & magnitude) == 0) free_bits |= 0x80;
    if (free_bits == 0) return;
    tile.alternatives.push_back({.element = static_cast<int64_t>(byte),
                                 .value = 0,
                                 .any = false,
                                 .reason = kUnsignedZero,
                                 .free_bits = free_bits});
  }

  // x: of the row type; given: before it was rounded to that.
  ElementBound BoundElement(const RoundTripQuestion& question, const BlockScale& scale, double x,
                            double given) const {
    ElementBound bound;
    const double size = std::fabs(x);
    const double step = Decode(format_.scale, scale.byte) * format_.global_scale;
    bound.terms[kRow] = std::fabs(given - x);
    bound.overflows = scale.is_lost;
    if (step == 0) {
      bound.terms[kCode] = size;
    } else {
      AddRoundings(question, step, size, &bound);
    }
    const auto total = [&] {
      double sum = 0;
      for (const double term : bound.terms) sum += term;
      return sum;
    };
    double others = bound.terms[kRow] + bound.others;
    const DType written = question.read.value_or(format_.row);
    const bool is_written =
        question.read.has_value() &&
        (question.decode == DecodeRounding::kExact || !Holds(written, format_.row));
    const double largest = (std::fabs(given) + total()) * kEvaluation;
    if (question.decode != DecodeRounding::kExact) {
      bound.overflows = bound.overflows || largest >= OverflowThreshold(format_.row);
    }
    if (is_written) {
      bound.overflows = bound.overflows || largest >= OverflowThreshold(written);
      if (!bound.overflows) {
        bound.terms[kRow] += HalfSpacing(written, largest);
        others += 2 * HalfSpacing(written, 2 * largest);
      }
    }
    bound.total = total();
    if (step != 0 && !bound.overflows) {
      bound.wrong_code =
          std::max(0.0, step * NearestOther(format_.element, size / step) - others * kEvaluation);
    }
    return bound;
  }

  void AddRoundings(const RoundTripQuestion& question, double step, double size,
                    ElementBound* bound) const {
    const FloatType& element = FloatTypeOf(format_.element);
    const double t = size / step;
    // Of 0 nothing is rounded.
    const double off = t == 0 ? 0 : format_.position_error(format_, question.profile, t);
    bound->terms[kCode] = step * HalfGap(format_.element, t);
    bound->terms[kEncoder] = 2 * step * off;
    if (question.decode == DecodeRounding::kExact) return;
    const double code = std::min(element.largest_finite, t + HalfGap(format_.element, t) + 2 * off);
    // The next one of either side.
    const double other = 2 * code + element.smallest_subnormal;
    const bool is_power = format_.scale == DType::kFloat8E8M0FNU;
    double of_scale = 0;
    if (question.decode == DecodeRounding::kTwoRoundings) {
      const double read = is_power ? RoundTo(format_.row, step) : ToFloat32(step);
      bound->overflows = bound->overflows || !std::isfinite(read);
      if (bound->overflows) return;
      of_scale = std::fabs(read - step);
    }
    bound->terms[kScale] = code * of_scale;
    bound->terms[kProduct] = ProductRounding(question.decode, step, code * (step + of_scale));
    bound->others =
        other * of_scale + ProductRounding(question.decode, step, other * (step + of_scale));
  }

  // Products with a power of two lose bits below the smallest number of the type alone; those with
  // a scale of four bits, none of a row type.
  double ProductRounding(DecodeRounding decode, double step, double largest) const {
    const bool is_power = format_.scale == DType::kFloat8E8M0FNU;
    const bool is_exact = is_power ? FloatTypeOf(format_.element).smallest_subnormal * step >=
                                         FloatTypeOf(format_.row).smallest_subnormal
                                   : format_.global_scale == 1;
    if (is_exact || largest == 0 || largest >= OverflowThreshold(format_.row)) return 0;
    const double in_f32 = !is_power && decode == DecodeRounding::kTwoRoundings
                              ? HalfSpacing(DType::kFloat32, largest)
                              : 0;
    return HalfSpacing(format_.row, largest + in_f32) + in_f32;
  }

  BlockFloats format_;
  bool leaves_decode_;
};

}  // namespace

uint8_t E2M1Code(E2M1Rule rule, double w) {
  if (rule == E2M1Rule::kEven) {
    return static_cast<uint8_t>(Encode(DType::kFloat4E2M1FN, w, {.overflow = Overflow::kSaturate}));
  }
  constexpr std::array<double, 7> kMidpoints = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  const double size = std::fabs(w);
  unsigned code = 0;
  if (rule == E2M1Rule::kDown && size >= kRoundedDistances) {
    code = FirstNearestInFloat32(size);
  } else {
    for (const double midpoint : kMidpoints) {
      code += (rule == E2M1Rule::kUp ? size >= midpoint : size > midpoint) ? 1 : 0;
    }
  }
  const bool is_negative = w < 0 && (rule == E2M1Rule::kUp || code != 0);
  return static_cast<uint8_t>(is_negative ? code | 8 : code);
}

double ToFloat32(double x) { return RoundTo(DType::kFloat32, x); }

std::unique_ptr<FormatArithmetic> MakeBlockFloatArithmetic(const BlockFloats& format,
                                                           bool leaves_decode) {
  return std::make_unique<BlockFloatArithmetic>(format, leaves_decode);
}

}  // namespace kvcheck
