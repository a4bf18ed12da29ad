#include "reference/formats/turboquant_bound.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

bool IsFiniteGroup(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float value) { return std::isfinite(value); });
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

}  // namespace

std::vector<float> RoundedFloats(DType type, std::span<const double> x) {
  std::vector<double> rounded(x.begin(), x.end());
  RoundAll(rounded, type);
  return {rounded.begin(), rounded.end()};  // exact
}

double AsHalf(double value) { return RoundTo(DType::kFloat16, value); }

bool HasHalfNorm(std::span<const float> x) {
  return IsFiniteGroup(x) && AsHalf(static_cast<double>(TurboquantGroup::Norm(x))) <=
                                 FloatTypeOf(DType::kFloat16).largest_finite;
}

ExactTurboquant EvaluateNorm(std::span<const float> x) {
  ExactTurboquant exact;
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  exact.norm = std::sqrt(sum);
  exact.norm_error = (static_cast<double>(x.size()) / 2 + 2) * kFloatUnit;
  return exact;
}

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

ExactTurboquant EvaluateTurboquant(const TurboquantGroup& group, std::span<const float> x) {
  ExactTurboquant exact = EvaluateNorm(x);
  exact.unit.assign(x.begin(), x.end());
  const double divisor = group.Divisor(exact.norm);
  for (double& value : exact.unit) value /= divisor;
  exact.y = exact.unit;
  group.ToBasis<double>(exact.y);
  return exact;
}

ExactCodes CodesOf(const TurboquantGroup& group, const ExactTurboquant& exact,
                   bool zeros_are_exact) {
  const double d = static_cast<double>(group.d());
  ExactCodes codes;
  for (size_t j = 0; j < group.d(); ++j) {
    const double y = exact.y[j];
    const size_t i = NearestThreshold(group.thresholds(), y);
    const auto c = static_cast<double>(group.centroids()[group.CodeOf(y)]);
    codes.centroids.push_back(c);
    codes.sum += std::fabs(c);
    codes.square += c * c;
    const double error = kTurboquantBand / std::sqrt(d) + kFloatUnit * (std::log2(d) + 4) +
                         std::fabs(y) * exact.norm_error;
    const auto t = static_cast<double>(group.thresholds()[i]);
    if (!(std::fabs(y - t) <= error)) continue;
    if (y == 0 && t == 0 && zeros_are_exact) continue;
    const double gap =
        static_cast<double>(group.centroids()[i + 1]) - static_cast<double>(group.centroids()[i]);
    codes.open.push_back({j, gap, error});
  }
  return codes;
}

ExactCodes CodesAs(const TurboquantGroup& group, std::span<const uint8_t> codes) {
  ExactCodes exact;
  for (const uint8_t code : codes) {
    const auto c = static_cast<double>(group.centroids()[code]);
    exact.centroids.push_back(c);
    exact.sum += std::fabs(c);
    exact.square += c * c;
  }
  return exact;
}

std::vector<OtherCode> OtherCodes(const TurboquantGroup& group, std::span<const float> x,
                                  const ExactTurboquant& exact, std::span<const uint8_t> codes) {
  const double band = kTurboquantBand / std::sqrt(static_cast<double>(group.d()));
  const bool zeros_are_exact = ZerosAreExact(x);
  std::vector<OtherCode> others;
  for (size_t j = 0; j < group.d(); ++j) {
    const size_t i = NearestThreshold(group.thresholds(), exact.y[j]);
    const double t = static_cast<double>(group.thresholds()[i]);
    if (!(std::fabs(exact.y[j] - t) <= band)) continue;
    if (exact.y[j] == 0 && t == 0 && zeros_are_exact) continue;
    others.push_back({j, static_cast<uint8_t>(codes[j] == i ? i + 1 : i)});
  }
  return others;
}

bool MarkWithoutBound(std::span<const float> x, const ExactTurboquant& exact, size_t first,
                      RowBound* bound) {
  const bool finite = IsFiniteGroup(x);
  if (finite && exact.norm * (1 + exact.norm_error) < OverflowThreshold(DType::kFloat16)) {
    return false;
  }
  for (size_t i = first; i < first + x.size(); ++i) {
    bound->undefined[i] = !finite;
    bound->overflows[i] = true;
    bound->total[i] = kTurboquantNoBound;
  }
  return true;
}

void AddMeaningless(size_t first, size_t count, ExpectedTile* tile) {
  for (size_t element = first; element < first + count; ++element) {
    tile->alternatives.push_back({.element = static_cast<int64_t>(element),
                                  .value = 0,
                                  .any = true,
                                  .reason = kNormNotFinite});
  }
}

void AddHalfAlternatives(double lowest, double highest, CodecReason reason, size_t element,
                         ExpectedTile* tile) {
  const FloatType& half = FloatTypeOf(DType::kFloat16);
  const double last = AsHalf(highest);
  for (double value = AsHalf(lowest); value <= last;) {
    if (value != tile->value[element]) {
      tile->alternatives.push_back({.element = static_cast<int64_t>(element),
                                    .value = value,
                                    .any = false,
                                    .reason = reason});
    }
    // Of numbers that are not negative the next one has the next code.
    const double next = Decode(DType::kFloat16, Encode(DType::kFloat16, value) + 1);
    if (!(next <= half.largest_finite)) return;
    value = next;
  }
}

void AddNormAlternatives(const ExactTurboquant& exact, size_t element, ExpectedTile* tile) {
  for (const double side : {-1.0, 1.0}) {
    const double other = AsHalf(exact.norm * (1 + side * exact.norm_error));
    if (other == tile->value[element]) continue;
    tile->alternatives.push_back({.element = static_cast<int64_t>(element),
                                  .value = other,
                                  .any = false,
                                  .reason = kNearHalfNorm});
  }
}

void AddCodeAlternatives(const TurboquantGroup& group, int bits_per_code, std::span<const float> x,
                         const ExactTurboquant& exact, size_t first_word, ExpectedTile* tile) {
  const auto bits = static_cast<size_t>(bits_per_code);
  std::vector<uint8_t> codes(group.d());
  group.Encode(x, codes);
  std::map<size_t, std::vector<uint32_t>> changes;  // of each word, what a choice flips
  for (const OtherCode& other : OtherCodes(group, x, exact, codes)) {
    const size_t j = other.coordinate;
    const uint64_t flipped = static_cast<uint64_t>(codes[j] ^ other.code) << (j * bits % 32);
    changes[j * bits / 32].push_back(static_cast<uint32_t>(flipped));
    if (flipped >> 32 != 0) {
      changes[j * bits / 32 + 1].push_back(static_cast<uint32_t>(flipped >> 32));
    }
  }
  for (const auto& [word, flips] : changes) {
    const size_t element = first_word + word;
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

void AddTurboquantElement(const RoundTripQuestion& question, DType row_type, double given,
                          std::span<double> terms, size_t i, RowBound* bound) {
  const auto total = [&] {
    double sum = 0;
    for (const double term : terms) sum += term;
    return sum * (1 + kTurboquantRounding);
  };
  bool overflows = false;
  const auto rounded_to = [&](DType type) {
    const double largest = std::fabs(given) + total();
    overflows = overflows || largest >= OverflowThreshold(type);
    if (!overflows) terms[0] += HalfSpacing(type, largest);
  };
  if (question.decode != DecodeRounding::kExact && row_type != DType::kFloat32) {
    rounded_to(row_type);
  }
  const DType holds = question.decode == DecodeRounding::kExact ? DType::kFloat32 : row_type;
  if (question.read.has_value() && !Holds(*question.read, holds)) rounded_to(*question.read);
  bound->overflows[i] = overflows;
  if (overflows) {
    bound->total[i] = kTurboquantNoBound;
    return;
  }
  for (size_t term = 0; term < terms.size(); ++term) bound->terms[term][i] = terms[term];
  bound->total[i] = total();
}

double TurboquantDecodeBound(DType row_type, double y, double of_values) {
  if (row_type == DType::kFloat32) return of_values;
  const double bound = of_values + 2 * HalfSpacing(row_type, std::fabs(y) + of_values);
  return std::fabs(y) + bound < OverflowThreshold(row_type) ? bound : kTurboquantNoBound;
}

}  // namespace kvcheck
