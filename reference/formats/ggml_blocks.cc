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

enum GgmlTerm { kRow, kCode, kScale, kEncoder, kGgmlTerms };

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

// Whether the reciprocal of the step may overflow: the codes then say nothing, and the stored scale
// is 0.
bool HasNoReciprocal(GgmlValues x, float step) {
  const bool zeros = std::all_of(x.begin(), x.end(), [](float value) { return value == 0; });
  return !zeros && std::fabs(step) < 0x1p-127f;
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
    DecodeToRowType(stored, hi);
    std::fill(lo.begin(), lo.end(), 0.0);
  }
  void DecodeToRowType(RowPlanesView stored, std::span<double> out) override {
    const std::byte* block = stored[0];
    for (size_t first = 0; first < out.size(); first += kBlock, block += family_.block_bytes) {
      const GgmlCodes read = family_.read(block);
      for (size_t i = 0; i < kBlock; ++i) out[first + i] = read.codes[i] * read.scale;
    }
  }
  void ReadCodes(RowPlanesView stored, std::span<double> codes, std::span<double> scales,
                 std::span<double> biases) override {
    const std::byte* block = stored[0];
    for (size_t b = 0; b < scales.size(); ++b, block += family_.block_bytes) {
      const GgmlCodes read = family_.read(block);
      std::copy(read.codes.begin(), read.codes.end(),
                codes.begin() + static_cast<std::ptrdiff_t>(b * kBlock));
      scales[b] = read.scale;
      biases[b] = 0;
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
    return {"row rounding", "code", "scale rounding", "encoder arithmetic"};
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
      const double step = std::fabs(static_cast<double>(family_.step(block)));
      for (size_t i = 0; i < kBlock; ++i) {
        BoundElement(question.read, block[i], family_.step(block) < 0, step, x[first + i],
                     first + i, bound);
      }
    }
  }

  // |code scale| of a stored value, which has no bias.
  std::vector<double> Parts(const Profile&, std::span<const double> x,
                            std::vector<double> total) const override {
    for (size_t i = 0; i < x.size(); ++i) total[i] = (std::fabs(x[i]) + total[i]) * kEvaluation;
    return total;
  }

  // The bound holds of every writer.
  bool SameBound(const Profile&, const Profile&, std::span<const double>) const override {
    return true;
  }

  std::vector<ProfileChange> OtherProfiles(const Profile& profile) const override {
    std::vector<ProfileChange> changes;
    if (!family_.depends_on_writer) return changes;
    AddChanges(profile, "ggml_encode", &Profile::ggml_encode,
               {GgmlEncoder::kReference, GgmlEncoder::kX86}, &changes);
    return changes;
  }

  void AddAlternatives(const Profile&, std::span<const double> x,
                       std::vector<ExpectedTile>* tiles) const override {
    std::vector<Alternative>& alternatives = (*tiles)[0].alternatives;
    for (size_t first = 0; first < x.size(); first += kBlock) {
      const std::array<float, kBlock> block = RoundedBlock(x.subspan(first, kBlock));
      const auto at = static_cast<int64_t>(first / kBlock) * family_.block_bytes;
      const auto any = [&](int64_t from, CodecReason reason) {
        for (int64_t byte = from; byte < family_.block_bytes; ++byte) {
          alternatives.push_back({.element = at + byte, .value = 0, .any = true, .reason = reason});
        }
      };
      if (!IsFinite(block)) {
        any(0, kNotFiniteBlock);
      } else if (HasNoReciprocal(block, family_.step(block))) {
        any(family_.first_code, kBlockWithoutScale);
      } else if (family_.free_bits_of_zeros != 0 && family_.step(block) == 0) {
        for (int64_t byte = 0; byte < 2; ++byte) {
          const uint64_t bits = uint64_t{family_.free_bits_of_zeros} >> (8 * byte) & 0xff;
          if (bits == 0) continue;
          alternatives.push_back({.element = at + byte,
                                  .value = 0,
                                  .any = false,
                                  .reason = kSignOfZeroScale,
                                  .free_bits = bits});
        }
      }
    }
  }

 private:
  // x: as f32; given: before it was rounded to that. step: its size.
  void BoundElement(std::optional<DType> read, double x, bool is_negative, double step,
                    double given, size_t i, RowBound* bound) const {
    const double size = std::fabs(x);
    const double of_half = HalfRounding(step);
    const double steps = step == 0 ? 0 : size / step;
    // Position among the codes 0..n.
    const double n = family_.highest - family_.lowest;
    const double t = (step == 0 ? 0 : (is_negative ? -x : x) / step) - family_.lowest;
    const double largest_code = std::max(family_.highest, -family_.lowest);
    std::array<double, kGgmlTerms> terms{};
    terms[kRow] = std::fabs(given - x);
    terms[kCode] = step * std::max({0.5, t - n, -t});
    terms[kScale] = std::min(largest_code, steps + 0.5) * of_half;
    const double arithmetic =
        kU32 * (family_.arithmetic_of_value * size + family_.arithmetic_of_step * step);
    terms[kEncoder] = arithmetic * (step == 0 ? 1 : 1 + of_half / step);
    const auto total = [&] {
      double sum = 0;
      for (const double term : terms) sum += term;
      return sum * kEvaluation;
    };
    double others = (steps + 1.5) * of_half + terms[kEncoder] + terms[kRow];
    bool overflows = step >= OverflowThreshold(DType::kFloat16);
    if (read.has_value() && !Holds(*read, DType::kFloat32)) {
      const double largest = std::fabs(given) + total();
      overflows = overflows || largest >= OverflowThreshold(*read);
      if (!overflows) {
        terms[kRow] += HalfSpacing(*read, largest);
        others += 2 * HalfSpacing(*read, largest + 2 * step);
      }
    }
    bound->overflows[i] = overflows;
    if (overflows) {
      bound->total[i] = kInfinity;
      return;
    }
    for (size_t term = 0; term < kGgmlTerms; ++term) {
      bound->terms[term][i] = terms[term] * kEvaluation;
    }
    bound->total[i] = total();
    bound->wrong_code[i] = std::max(0.0, step * NearestOther(t, n) - others * kEvaluation);
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

std::unique_ptr<FormatArithmetic> MakeGgmlArithmetic(const GgmlFamily& family) {
  return std::make_unique<GgmlArithmetic>(family);
}

}  // namespace kvcheck
