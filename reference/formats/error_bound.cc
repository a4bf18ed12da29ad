#include "reference/formats/error_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "reference/formats/affine.h"
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
enum PlainTerm { kFormat, kSaturation, kPlainRow, kPlainTerms };

using AffineTerms = std::array<double, kAffineTerms>;

double Total(const AffineTerms& terms) {
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

struct AffineBound {
  AffineTerms terms = {};
  bool overflows = false;
};

AffineBound BoundForStep(const AffineFormat& format, DecodeRounding decode, const GroupRange& range,
                         double k, double x) {
  const double n = static_cast<double>((1 << format.bits) - 1);
  const double u = UnitRoundoff(format.scale_dtype);
  const double eta = HalfSmallestSubnormal(format.scale_dtype);
  const double threshold = OverflowThreshold(format.scale_dtype);
  const double s = k != 0 ? std::fabs(range.edge) / k : range.s0;
  const double t = k != 0 ? std::fabs(x - range.edge) / s : range.from_below ? x / s : -x / s;
  const double c = std::clamp(t + 0.5, 0.0, n);
  AffineBound bound;
  AffineTerms& terms = bound.terms;
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
  return bound;
}

void BoundAffineGroup(const AffineFormat& format, const Profile& profile, DecodeRounding decode,
                      std::span<const double> x, size_t first, RowBound* bound) {
  std::vector<double> rounded(x.begin(), x.end());
  RoundAll(rounded, format.scale_dtype);
  const bool finite = std::all_of(rounded.begin(), rounded.end(),
                                  [](double value) { return std::isfinite(value); });
  GroupRange range;
  bool overflows = !finite;
  if (finite) {
    range = RangeOf(format.bits, profile.encode, rounded);
    // mx - mn, in f32.
    const double n = static_cast<double>((1 << format.bits) - 1);
    overflows = range.s0 * n * kEvaluation >= OverflowThreshold(DType::kFloat32);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    AffineBound worst;
    worst.overflows = overflows;
    double worst_total = -1;
    for (const double k : range.k) {
      if (overflows) break;
      AffineBound candidate = BoundForStep(format, decode, range, k, rounded[i]);
      candidate.terms[kRow] = std::fabs(x[i] - rounded[i]);
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
  }
}

void BoundPlainElement(DType stored, const Profile& profile, DType read, double x, size_t i,
                       RowBound* bound) {
  // One rounding of a known rule: whether it overflows is not a matter of bounds.
  if (!std::isfinite(x) || !std::isfinite(PlainRoundTrip(stored, read, profile, x))) {
    bound->overflows[i] = true;
    bound->total[i] = kInfinity;
    return;
  }
  const double beyond = std::fabs(x) - FloatTypeOf(stored).largest_finite;
  double total = 0;
  if (!Holds(stored, read)) {
    const double half = HalfSpacing(stored, x);
    const bool saturated = beyond > half;
    bound->terms[saturated ? kSaturation : kFormat][i] = saturated ? beyond : half;
    total += saturated ? beyond : half;
  }
  if (!Holds(read, stored)) {
    const double half = HalfSpacing(read, std::fabs(x) + total);
    bound->terms[kPlainRow][i] = half;
    total += half;
  }
  bound->total[i] = total;  // powers of two and one exact difference
}

}  // namespace

std::vector<std::string> BoundTerms(const KvFormat& format) {
  if (IsPlain(format)) return {"format rounding", "saturation", "row rounding"};
  return {"row rounding",     "code",         "scale rounding",
          "product rounding", "sum rounding", "encoder arithmetic"};
}

RowBound RoundTripBound(const KvFormat& format, const Profile& profile, DecodeRounding decode,
                        DType x_dtype, std::span<const double> x) {
  RowBound bound;
  bound.total.assign(x.size(), 0.0);
  bound.overflows.assign(x.size(), false);
  bound.terms.assign(BoundTerms(format).size(), std::vector<double>(x.size(), 0.0));
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    for (size_t i = 0; i < x.size(); ++i) {
      BoundPlainElement(plain->dtype, profile, x_dtype, x[i], i, &bound);
    }
    return bound;
  }
  const auto& affine = std::get<AffineFormat>(format);
  const size_t group = static_cast<size_t>(affine.group_size);
  for (size_t first = 0; first < x.size(); first += group) {
    BoundAffineGroup(affine, profile, decode, x.subspan(first, group), first, &bound);
  }
  return bound;
}

std::vector<double> PartsBound(const AffineFormat& format, const Profile& profile, DType x_dtype,
                               std::span<const double> x) {
  std::vector<double> parts =
      RoundTripBound(format, profile, DecodeRounding::kExact, x_dtype, x).total;
  const size_t group = static_cast<size_t>(format.group_size);
  for (size_t first = 0; first < x.size(); first += group) {
    std::vector<double> rounded(x.begin() + static_cast<std::ptrdiff_t>(first),
                                x.begin() + static_cast<std::ptrdiff_t>(first + group));
    RoundAll(rounded, format.scale_dtype);
    // An element of the rounded group, so that the stored bias is it exactly. Without a bias the
    // part is |stored value| alone, which is smaller.
    const double edge = RangeOf(format.bits, profile.encode, rounded).edge;
    for (size_t i = first; i < first + group; ++i) {
      if (!(parts[i] < kInfinity)) continue;
      parts[i] = (std::fabs(x[i] - edge) + parts[i] + std::fabs(edge)) * kEvaluation;
    }
  }
  return parts;
}

std::vector<double> OriginalErrorBound(const KvFormat& format, const Profile& profile,
                                       DType x_dtype, std::span<const double> x) {
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    // Attention reads the stored value itself: no second rounding.
    const DType read = Holds(x_dtype, plain->dtype) ? x_dtype : DType::kFloat64;
    return RoundTripBound(format, profile, profile.decode, read, x).total;
  }
  return RoundTripBound(format, profile, profile.decode, x_dtype, x).total;
}

}  // namespace kvcheck
