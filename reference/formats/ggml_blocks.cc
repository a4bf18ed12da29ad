#include "reference/formats/ggml_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr size_t kBlock = static_cast<size_t>(kGgmlBlock);
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kU32 = 0x1p-24;  // unit roundoff of f32, in which the encoder computes
// The formulas are evaluated in double with fewer than 2^6 operations on non-negative terms: their
// own rounding stays below 2^-46 of the result, which this covers.
constexpr double kEvaluation = 1.0 + 0x1p-40;

// The last two of families with a minimum.
enum GgmlTerm { kRow, kCode, kScale, kEncoder, kMinimum, kSum, kGgmlTerms };

// The values of a block as f32 holds them.
std::array<float, kBlock> RoundedBlock(std::span<const double> x) {
  std::array<double, kBlock> rounded;
  std::copy(x.begin(), x.end(), rounded.begin());
  RoundAll(rounded, DType::kFloat32);
  std::array<float, kBlock> block;
  for (size_t i = 0; i < kBlock; ++i) block[i] = static_cast<float>(rounded[i]);
  return block;
}

bool IsFinite(GgmlValues x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
}

// How far f16 is from v at most.
double HalfRounding(double v) { return std::max(0x1p-11 * std::fabs(v), 0x1p-25); }

// How near another code than the nearest one comes to position t of the codes 0..n, in steps.
double NearestOther(double t, double n) {
  if (t <= 0) return 1 - t;
  if (t >= n) return t - n + 1;
  const double above = t - std::floor(t);
  return std::max(above, 1 - above);
}

// Of encoders of even steps.
GgmlErrors EvenErrors(const GgmlFamily& family, GgmlValues x) {
  const double step = family.step(x);
  GgmlErrors errors;
  errors.scale = std::fabs(step);
  errors.minimum = family.minimum == nullptr ? 0.0 : family.minimum(x);
  const double n = family.highest - family.lowest;
  const double largest_code = std::max(family.highest, -family.lowest);
  const double of_half = HalfRounding(step);
  for (size_t i = 0; i < kBlock; ++i) {
    const double above = static_cast<double>(x[i]) - errors.minimum;
    const double size = std::fabs(above);
    const double steps = step == 0 ? 0 : above / step;
    const double t = steps - family.lowest;  // position among the codes 0..n
    GgmlElement& element = errors.elements[i];
    element.code = errors.scale * std::max({0.5, t - n, -t});
    element.largest_code = std::min(largest_code, std::fabs(steps) + 0.5);
    // The second factor: the code that f32 chose is multiplied by the stored scale.
    element.encoder =
        kU32 * (family.arithmetic_of_value * size + family.arithmetic_of_step * errors.scale) *
        (step == 0 ? 1 : 1 + of_half / errors.scale);
    element.next = errors.scale * NearestOther(t, n);
    element.next_code = std::fabs(steps) + 1.5;
  }
  return errors;
}

// Whether the reciprocal of the step may overflow: the codes then say nothing, and the stored scale
// is 0.
bool HasNoReciprocal(const GgmlFamily& family, GgmlValues x, float step) {
  const bool is_even = family.minimum != nullptr
                           ? step == 0
                           : std::all_of(x.begin(), x.end(), [](float v) { return v == 0; });
  return !is_even && std::fabs(step) < 0x1p-127f;
}

void AllFrom(int64_t first, const GgmlFamily& family, CodecReason reason,
             std::vector<GgmlFreedom>* freedoms) {
  for (int64_t byte = first; byte < family.block_bytes; ++byte) {
    freedoms->push_back({.byte = byte, .reason = reason});
  }
}

std::vector<GgmlFreedom> EvenFreedoms(const GgmlFamily& family, GgmlValues x) {
  std::vector<GgmlFreedom> freedoms;
  const float step = family.step(x);
  if (!std::isfinite(step)) {
    AllFrom(family.first_code, family, kRangeBeyondFloat, &freedoms);
  } else if (HasNoReciprocal(family, x, step)) {
    AllFrom(family.first_code, family, kBlockWithoutScale, &freedoms);
  } else if (family.free_bits_of_zeros != 0 && step == 0) {
    for (int64_t byte = 0; byte < 2; ++byte) {
      const uint64_t bits = uint64_t{family.free_bits_of_zeros} >> (8 * byte) & 0xff;
      if (bits == 0) continue;
      freedoms.push_back(
          {.byte = byte, .reason = kSignOfZeroScale, .any = false, .free_bits = bits});
    }
  }
  if (family.minimum != nullptr && family.minimum(x) == 0) {
    freedoms.push_back({.byte = 3, .reason = kSignOfZeroMinimum, .any = false, .free_bits = 0x80});
  }
  return freedoms;
}

class GgmlRows : public RowArithmetic {
 public:
  GgmlRows(const GgmlFamily& family, GgmlEncoder encoder) : family_(family), encoder_(encoder) {}

  void Encode(std::span<const double> x, RowPlanes stored) override {
    std::byte* block = stored[0];
    for (size_t first = 0; first < x.size(); first += kBlock, block += family_.block_bytes) {
      family_.encode(encoder_, RoundedBlock(x.subspan(first, kBlock)), block);
    }
  }
  void DecodeExact(RowPlanesView stored, std::span<double> hi, std::span<double> lo) override {
    const std::byte* block = stored[0];
    for (size_t first = 0; first < hi.size(); first += kBlock, block += family_.block_bytes) {
      const GgmlCodes read = family_.read(block);
      for (size_t i = 0; i < kBlock; ++i) {
        const double product = read.codes[i] * read.scale;
        // Where there is no minimum the sign of a zero stays.
        hi[first + i] = family_.minimum == nullptr ? product : product + read.minimum;
      }
    }
    std::fill(lo.begin(), lo.end(), 0.0);
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    DecodeExact(stored, out, {});
    if (family_.minimum != nullptr) RoundAll(out, DType::kFloat32);
  }
  void ReadCodes(RowPlanesView stored, std::span<double> codes, std::span<double> scales,
                 std::span<double> biases) override {
    const std::byte* block = stored[0];
    for (size_t b = 0; b < scales.size(); ++b, block += family_.block_bytes) {
      const GgmlCodes read = family_.read(block);
      std::copy(read.codes.begin(), read.codes.end(),
                codes.begin() + static_cast<std::ptrdiff_t>(b * kBlock));
      scales[b] = read.scale;
      biases[b] = read.minimum;
    }
  }

 private:
  GgmlFamily family_;
  GgmlEncoder encoder_;
};

class GgmlArithmetic : public FormatArithmetic {
 public:
  explicit GgmlArithmetic(const GgmlFamily& family) : family_(family) {}

  std::unique_ptr<RowArithmetic> MakeRows(const Profile& profile, int64_t) const override {
    return std::make_unique<GgmlRows>(family_, profile.ggml_encode);
  }

  std::vector<std::string> Terms() const override {
    std::vector<std::string> terms = {"row rounding", "code", "scale rounding",
                                      "encoder arithmetic"};
    if (family_.minimum != nullptr) {
      terms.insert(terms.end(), {"minimum rounding", "sum rounding"});
    }
    return terms;
  }

  void Bound(const RoundTripQuestion& question, std::span<const double> x,
             RowBound* bound) const override {
    for (size_t first = 0; first < x.size(); first += kBlock) {
      const std::array<float, kBlock> block = RoundedBlock(x.subspan(first, kBlock));
      if (!IsFinite(block)) {
        for (size_t i = first; i < first + kBlock; ++i) {
          bound->undefined[i] = bound->overflows[i] = true;
          bound->total[i] = kInfinity;
        }
        continue;
      }
      const GgmlErrors errors = ErrorsOf(block);
      for (size_t i = 0; i < kBlock; ++i) {
        BoundElement(question.read, errors, block[i], x[first + i], errors.elements[i], first + i,
                     bound);
      }
    }
  }

  // |code scale| and |minimum| of a stored value: code scale is the value less the minimum, each of
  // which is off by no more than the bound.
  std::vector<double> Parts(const Profile&, std::span<const double> x,
                            std::vector<double> total) const override {
    for (size_t first = 0; first < x.size(); first += kBlock) {
      const std::array<float, kBlock> block = RoundedBlock(x.subspan(first, kBlock));
      if (!IsFinite(block)) continue;  // without a bound
      const double minimum = family_.minimum == nullptr ? 0.0 : family_.minimum(block);
      const double of_half = family_.minimum == nullptr ? 0.0 : HalfRounding(minimum);
      for (size_t i = first; i < first + kBlock; ++i) {
        total[i] =
            (std::fabs(x[i] - minimum) + total[i] + std::fabs(minimum) + 2 * of_half) * kEvaluation;
      }
    }
    return total;
  }

  // The bound holds of every writer.
  bool SameBound(const Profile&, const Profile&, std::span<const double>) const override {
    return true;
  }

  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    if (!family_.depends_on_writer) return changes;
    AddChanges(profile, CodecChoice::kGgmlEncode, &changes);
    return changes;
  }

  void AddAlternatives(const Profile&, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    std::vector<Alternative>& alternatives = (*tiles)[0].alternatives;
    for (size_t first = 0; first < x.size(); first += kBlock) {
      const auto at = static_cast<int64_t>(first / kBlock) * family_.block_bytes;
      for (const GgmlFreedom& open : FreedomsOf(RoundedBlock(x.subspan(first, kBlock)))) {
        alternatives.push_back({.element = at + open.byte,
                                .value = static_cast<double>(open.value),
                                .any = open.any,
                                .reason = open.reason,
                                .free_bits = open.free_bits});
      }
    }
  }

 private:
  GgmlErrors ErrorsOf(GgmlValues x) const {
    return family_.errors != nullptr ? family_.errors(x) : EvenErrors(family_, x);
  }

  std::vector<GgmlFreedom> FreedomsOf(GgmlValues x) const {
    std::vector<GgmlFreedom> freedoms;
    if (!IsFinite(x)) {
      AllFrom(0, family_, kNotFiniteBlock, &freedoms);
      return freedoms;
    }
    return family_.freedoms != nullptr ? family_.freedoms(x) : EvenFreedoms(family_, x);
  }

  // x: as f32; given: before it was rounded to that.
  void BoundElement(std::optional<DType> read, const GgmlErrors& errors, double x, double given,
                    const GgmlElement& element, size_t i, RowBound* bound) const {
    const double of_half = HalfRounding(errors.scale);
    std::array<double, kGgmlTerms> terms{};
    const auto total = [&] {
      double sum = 0;
      for (const double term : terms) sum += term;
      return sum * kEvaluation;
    };
    terms[kRow] = std::fabs(given - x);
    terms[kCode] = element.code;
    terms[kScale] = element.largest_code * of_half;
    terms[kEncoder] = element.encoder;
    double others = element.next_code * of_half + terms[kEncoder] + terms[kRow];
    if (family_.minimum != nullptr) {
      terms[kMinimum] = HalfRounding(errors.minimum);
      const double largest = std::fabs(x) + total();
      terms[kSum] = kU32 * largest;
      others += terms[kMinimum] + kU32 * (largest + 2 * errors.scale);
    }
    bool overflows = errors.scale >= OverflowThreshold(DType::kFloat16) ||
                     std::fabs(errors.minimum) >= OverflowThreshold(DType::kFloat16);
    if (read.has_value() && !Holds(*read, DType::kFloat32)) {
      const double largest = std::fabs(given) + total();
      overflows = overflows || largest >= OverflowThreshold(*read);
      if (!overflows) {
        terms[kRow] += HalfSpacing(*read, largest);
        others += 2 * HalfSpacing(*read, largest + 2 * errors.scale);
      }
    }
    bound->overflows[i] = overflows;
    if (overflows) {
      bound->total[i] = kInfinity;
      return;
    }
    for (size_t term = 0; term < bound->terms.size(); ++term) {
      bound->terms[term][i] = terms[term] * kEvaluation;
    }
    bound->total[i] = total();
    bound->wrong_code[i] = std::max(0.0, element.next - others * kEvaluation);
  }

  GgmlFamily family_;
};

}  // namespace

double ReadHalf(const std::byte* at) {
  double value = 0;
  DecodeBytes(at, DType::kFloat16, {&value, 1});
  return value;
}

void WriteHalf(float value, std::byte* at) {
  const double number = value;
  EncodeFrom({&number, 1}, DType::kFloat16, at);
}

void WriteNibbles(std::span<const uint8_t, kGgmlBlock> codes, std::byte* at) {
  for (size_t j = 0; j < kBlock / 2; ++j) {
    const unsigned low = codes[j] & 15u;
    const unsigned high = codes[j + kBlock / 2] & 15u;
    at[j] = static_cast<std::byte>(low | high << 4);
  }
}

void ReadNibbles(const std::byte* at, std::span<int, kGgmlBlock> codes) {
  for (size_t j = 0; j < kBlock / 2; ++j) {
    const auto byte = std::to_integer<int>(at[j]);
    codes[j] = byte & 15;
    codes[j + kBlock / 2] = byte >> 4;
  }
}

void WriteFiveBits(std::span<const uint8_t, kGgmlBlock> codes, std::byte* at) {
  for (size_t i = 0; i < kBlock; i += 8) {
    unsigned bits = 0;
    for (size_t k = 0; k < 8; ++k) bits |= (codes[i + k] >> 4 & 1u) << k;
    at[i / 8] = static_cast<std::byte>(bits);
  }
  WriteNibbles(codes, at + kBlock / 8);
}

void ReadFiveBits(const std::byte* at, std::span<int, kGgmlBlock> codes) {
  ReadNibbles(at + kBlock / 8, codes);
  for (size_t i = 0; i < kBlock; ++i) {
    codes[i] |= (std::to_integer<int>(at[i / 8]) >> (i % 8) & 1) << 4;
  }
}

float LargestElement(GgmlValues x) {
  float largest = 0, element = 0;
  for (const float value : x) {
    if (largest < std::fabs(value)) {
      largest = std::fabs(value);
      element = value;
    }
  }
  return element;
}

float LeastElement(GgmlValues x) {
  float least = std::numeric_limits<float>::max();
  for (const float value : x) {
    if (value < least) least = value;
  }
  return least;
}

float RangeStep(GgmlValues x, float levels) {
  float most = -std::numeric_limits<float>::max();
  for (const float value : x) {
    if (value > most) most = value;
  }
  return (most - LeastElement(x)) / levels;
}

uint8_t TruncatedCode(float x, int highest) {
  return std::isfinite(x) ? static_cast<uint8_t>(std::min(highest, static_cast<int>(x))) : 0;
}

std::unique_ptr<FormatArithmetic> MakeGgmlArithmetic(const GgmlFamily& family) {
  return std::make_unique<GgmlArithmetic>(family);
}

}  // namespace kvcheck
