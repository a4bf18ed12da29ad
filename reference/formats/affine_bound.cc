#include "reference/formats/affine_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "reference/formats/affine.h"
#include "reference/formats/group_codes.h"
#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Unit roundoff of f32, in which the encoder computes.
constexpr double kU32 = 0x1p-24;
// The formulas are evaluated in double with fewer than 2^6 operations on non-negative terms: their
// own rounding stays below 2^-46 of the result, which this covers.
constexpr double kEvaluation = 1.0 + 0x1p-40;

enum AffineTerm { kRow, kCode, kScale, kProduct, kSum, kEncoder, kAffineTerms };
using TermValues = std::array<double, kAffineTerms>;

double Total(const TermValues& terms) {
  double total = 0;
  for (const double term : terms) total += term;
  return total;
}

// What the bound of an element takes from its group.
struct GroupRange {
  double edge = 0;
  bool from_below = false;       // |mn| > |mx|: steps are counted upwards from mn
  double s0 = 0;                 // the step before it is fitted to the edge
  std::array<double, 3> k = {};  // candidates of the rounded edge / s0
};

GroupRange RangeOf(int bits, AffineEncoder encoder, std::span<const double> x) {
  const double n = static_cast<double>((1 << bits) - 1);
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const double mn = *low;
  const double mx = encoder == AffineEncoder::kMlxGpu ? std::max(*high, 0.0) : *high;
  GroupRange range;
  range.from_below = std::fabs(mn) > std::fabs(mx);
  range.edge = range.from_below ? mn : mx;
  range.s0 = std::max((mx - mn) / n, static_cast<double>(kAffineSmallestStep));
  // edge / s0 in f32 is off by at most 4u, which can move it over a half-integer; ties of either
  // rule are among the three.
  const double r = std::fabs(range.edge) / range.s0;
  range.k = {std::nearbyint(r), std::nearbyint(r * (1 - 4 * kU32)),
             std::nearbyint(r * (1 + 4 * kU32))};
  return range;
}

// The elements of a group that its range is taken from: all, or where the encoder skips NaN the
// numbers; empty where the group has no meaning.
std::vector<double> RangeElements(AffineEncoder encoder, std::span<const double> rounded) {
  std::vector<double> elements;
  for (const double value : rounded) {
    if (std::isinf(value) || (std::isnan(value) && encoder != AffineEncoder::kMlxCpu)) return {};
    if (!std::isnan(value)) elements.push_back(value);
  }
  return elements;
}

struct AffineBound {
  TermValues terms = {};
  bool overflows = false;
  double wrong_code = 0;
};

// How near another code than the nearest one comes to x, which stands at position t of the codes
// 0..n, in steps.
double NextCode(double t, double n) {
  if (t <= 0) return 1 - t;
  if (t >= n) return t - n + 1;
  const double above = t - std::floor(t);
  return std::max(above, 1 - above);
}

// x: of the row type; given: x before it was rounded to that.
AffineBound BoundForStep(const AffineFormat& format, DecodeRounding decode,
                         std::optional<DType> read, const GroupRange& range, double k, double x,
                         double given) {
  const double n = static_cast<double>((1 << format.bits) - 1);
  const double u = UnitRoundoff(format.scale_dtype);
  const double eta = HalfSmallestSubnormal(format.scale_dtype);
  const double threshold = OverflowThreshold(format.scale_dtype);
  const double s = k != 0 ? std::fabs(range.edge) / k : range.s0;
  const double t = k != 0 ? std::fabs(x - range.edge) / s : range.from_below ? x / s : -x / s;
  const double c = std::clamp(t + 0.5, 0.0, n);
  AffineBound bound;
  TermValues& terms = bound.terms;
  terms[kCode] = s * std::max({0.5, t - n, -t});
  terms[kScale] = c * s * u + c * eta;
  terms[kEncoder] = 3 * kU32 * s * std::fabs(t) + 5 * kU32 * c * s + 0x1p-149;
  if (decode == DecodeRounding::kTwoRoundings) {
    terms[kProduct] = c * s * u + eta;
    const double product = c * s + terms[kScale] + terms[kEncoder];
    bound.overflows = product * kEvaluation >= threshold;
  }
  if (decode != DecodeRounding::kExact) {
    const double before = std::fabs(x) + Total(terms);
    bound.overflows = bound.overflows || before * kEvaluation >= threshold;
    terms[kSum] = u * ((before + eta) / (1 - u)) + eta;
  }
  terms[kRow] = std::fabs(given - x);
  // Another code stands at most a step further, and its value is read with the same roundings: of
  // two products (scale, product), each of which grows by s u + eta at most, and of a sum.
  double wrong_roundings = Total(terms) - terms[kCode] + 6 * s * u + 2 * eta + 8 * kU32 * s;
  const DType written = read.value_or(format.scale_dtype);
  if (read.has_value() &&
      (decode == DecodeRounding::kExact || !Holds(written, format.scale_dtype))) {
    const double largest = (std::fabs(given) + Total(terms)) * kEvaluation;
    bound.overflows = bound.overflows || largest >= OverflowThreshold(written);
    if (!bound.overflows) {
      terms[kRow] += HalfSpacing(written, largest);
      wrong_roundings += HalfSpacing(written, largest + 2 * s);
    }
  }
  bound.wrong_code = std::max(0.0, s * NextCode(t, n) - wrong_roundings * kEvaluation);
  return bound;
}

// Of KIVI's writer, whose scale and bias are those that it stores: there is no rounding of a scale.
void BoundMinimumGroup(const AffineFormat& format, const RoundTripQuestion& question,
                       std::span<const double> x, size_t first, RowBound* bound) {
  std::vector<double> rounded(x.begin(), x.end());
  RoundAll(rounded, format.scale_dtype);
  ValueRange range;
  for (const double value : rounded) range.Add(value);
  const MinimumGroup group = MinimumGroupOf(format.bits, format.scale_dtype, range);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t at = first + i;
    bound->undefined[at] = !range.is_finite;
    bound->overflows[at] = true;
    bound->total[at] = kInfinity;
    if (!group.is_defined) continue;
    CodePlace place{format.bits, format.scale_dtype, group.scale};
    if (group.scale == 0) {
      place.above = rounded[i] - group.zero;
    } else {
      place.t = (rounded[i] - group.zero) / group.scale;
      place.position_error = MinimumPositionError(format.scale_dtype, place.t);
    }
    const CodeBound code = BoundOfCode(question, place, rounded[i], x[i]);
    bound->overflows[at] = code.overflows;
    bound->total[at] = code.total;
    bound->wrong_code[at] = code.wrong_code;
    bound->terms[kRow][at] = code.terms[kRowTerm];
    bound->terms[kCode][at] = code.terms[kCodeTerm];
    bound->terms[kProduct][at] = code.terms[kProductTerm];
    bound->terms[kSum][at] = code.terms[kSumTerm];
    bound->terms[kEncoder][at] = code.terms[kEncoderTerm];
  }
}

void BoundGroup(const AffineFormat& format, const RoundTripQuestion& question,
                std::span<const double> x, size_t first, RowBound* bound) {
  std::vector<double> rounded(x.begin(), x.end());
  RoundAll(rounded, format.scale_dtype);
  const std::vector<double> elements = RangeElements(question.profile.encode, rounded);
  GroupRange range;
  bool overflows = elements.empty();
  if (!overflows) {
    range = RangeOf(format.bits, question.profile.encode, elements);
    // mx - mn, in f32.
    const double n = static_cast<double>((1 << format.bits) - 1);
    overflows = range.s0 * n * kEvaluation >= OverflowThreshold(DType::kFloat32);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    AffineBound worst;
    bound->undefined[first + i] = elements.empty() || std::isnan(rounded[i]);
    const bool unbounded = overflows || bound->undefined[first + i];
    worst.overflows = unbounded;
    double worst_total = -1;
    double wrong_code = kInfinity;
    for (size_t attempt = 0; attempt < range.k.size() && !unbounded; ++attempt) {
      const double k = range.k[attempt];
      if (attempt > 0 && k == range.k[0]) continue;  // nearly always
      const AffineBound candidate =
          BoundForStep(format, question.decode, question.read, range, k, rounded[i], x[i]);
      wrong_code = std::min(wrong_code, candidate.wrong_code);
      const double total = candidate.overflows ? kInfinity : Total(candidate.terms);
      if (total > worst_total) {
        worst = candidate;
        worst_total = total;
      }
    }
    bound->overflows[first + i] = worst.overflows;
    if (worst.overflows) {
      bound->total[first + i] = kInfinity;
      continue;
    }
    for (size_t term = 0; term < kAffineTerms; ++term) {
      bound->terms[term][first + i] = worst.terms[term] * kEvaluation;
    }
    bound->total[first + i] = worst_total * kEvaluation;
    bound->wrong_code[first + i] = wrong_code;
  }
}

}  // namespace

std::vector<std::string> AffineTerms() {
  return {"row rounding",     "code",         "scale rounding",
          "product rounding", "sum rounding", "encoder arithmetic"};
}

void BoundAffineRow(const AffineFormat& format, const RoundTripQuestion& question,
                    std::span<const double> x, RowBound* bound) {
  const size_t group = static_cast<size_t>(format.group_size);
  const bool kivi = question.profile.encode == AffineEncoder::kKivi;
  for (size_t first = 0; first < x.size(); first += group) {
    (kivi ? BoundMinimumGroup : BoundGroup)(format, question, x.subspan(first, group), first,
                                            bound);
  }
}

std::vector<double> AffineParts(const AffineFormat& format, const Profile& profile,
                                std::span<const double> x, std::vector<double> total) {
  const size_t group = static_cast<size_t>(format.group_size);
  for (size_t first = 0; first < x.size(); first += group) {
    std::vector<double> rounded(x.begin() + static_cast<std::ptrdiff_t>(first),
                                x.begin() + static_cast<std::ptrdiff_t>(first + group));
    RoundAll(rounded, format.scale_dtype);
    const std::vector<double> elements = RangeElements(profile.encode, rounded);
    if (elements.empty()) continue;  // without a bound
    // An element of the rounded group, so that the stored bias is it exactly. Without a bias the
    // part is |stored value| alone, which is smaller.
    const double edge = profile.encode == AffineEncoder::kKivi
                            ? *std::min_element(elements.begin(), elements.end())
                            : RangeOf(format.bits, profile.encode, elements).edge;
    for (size_t i = first; i < first + group; ++i) {
      if (!(total[i] < kInfinity)) continue;
      total[i] = (std::fabs(x[i] - edge) + total[i] + std::fabs(edge)) * kEvaluation;
    }
  }
  return total;
}

}  // namespace kvcheck
