#include "reference/formats/turboquant.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/formats/random_signs.h"
#include "reference/formats/turboquant_codebook.h"
#include "reference/formats/turboquant_rotation.h"

namespace kvcheck {
namespace {

std::vector<float> SignsOf(const TurboquantFormat& format) {
  if (format.seed == TurboquantFormat::kPlainHadamard) {
    return std::vector<float>(static_cast<size_t>(format.group_size), 1.0f);
  }
  if (format.seed == TurboquantFormat::kGivenSigns) {
    std::vector<float> signs;
    for (size_t i = 0; i < static_cast<size_t>(format.group_size); ++i) {
      signs.push_back((format.signs[i / 32] >> i % 32 & 1) != 0 ? 1.0f : -1.0f);
    }
    return signs;
  }
  return RandomSigns(TurboquantRngSeed(format.seed, format.group_size), format.group_size);
}

}  // namespace

TurboquantGroup::TurboquantGroup(const TurboquantFormat& format, TurboquantWriter writer,
                                 TurboquantBasis basis)
    : writer_(writer),
      basis_(basis),
      centroids_(TurboquantCentroids(format)),
      thresholds_(ThresholdsBetween(centroids_)),
      signs_(SignsOf(format)) {}

float TurboquantGroup::Norm(std::span<const float> x) {
  std::vector<double> sums(x.begin(), x.end());
  for (double& value : sums) value *= value;  // exact
  for (size_t half = sums.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  const auto norm = static_cast<float>(std::sqrt(sums[0]));
  return std::isnan(norm) ? std::numeric_limits<float>::quiet_NaN() : norm;
}

template <typename T>
T TurboquantGroup::Divisor(T norm) const {
  return writer_ == TurboquantWriter::kMlxVlm ? std::max(norm, static_cast<T>(1e-6f))
                                              : norm + static_cast<T>(1e-8f);
}
template float TurboquantGroup::Divisor(float norm) const;
template double TurboquantGroup::Divisor(double norm) const;

// Signs after the transform are those before it of the way back.
template <typename T>
void TurboquantGroup::ToBasis(std::span<T> u) const {
  if (basis_ == TurboquantBasis::kSignsFirst) Rotate<T>(signs_, u);
  if (basis_ == TurboquantBasis::kSignsLast) RotateBack<T>(signs_, u);
}
template void TurboquantGroup::ToBasis(std::span<float> u) const;
template void TurboquantGroup::ToBasis(std::span<double> u) const;

template <typename T>
void TurboquantGroup::FromBasis(std::span<T> y) const {
  if (basis_ == TurboquantBasis::kSignsFirst) RotateBack<T>(signs_, y);
  if (basis_ == TurboquantBasis::kSignsLast) Rotate<T>(signs_, y);
}
template void TurboquantGroup::FromBasis(std::span<float> y) const;

uint8_t TurboquantGroup::CodeOf(double y) const {
  uint8_t code = 0;
  for (const float t : thresholds_) {
    const bool above = writer_ == TurboquantWriter::kMlxVlm ? y > static_cast<double>(t)
                                                            : y >= static_cast<double>(t);
    code = static_cast<uint8_t>(code + (above ? 1 : 0));
  }
  return code;
}

float TurboquantGroup::Encode(std::span<const float> x, std::span<uint8_t> codes) const {
  const float norm = Norm(x);
  const float divisor = Divisor(norm);
  std::vector<float> y(x.begin(), x.end());
  for (float& value : y) value /= divisor;
  ToBasis<float>(y);
  for (size_t i = 0; i < y.size(); ++i) codes[i] = CodeOf(static_cast<double>(y[i]));
  return norm;
}

void TurboquantGroup::Decode(std::span<const uint8_t> codes, float norm,
                             std::span<float> out) const {
  for (size_t i = 0; i < out.size(); ++i) out[i] = centroids_[codes[i]];
  if (writer_ == TurboquantWriter::kVllmNc) {
    float square = 0;
    for (const float c : out) square += c * c;
    const float inverse = 1.0f / std::sqrt(square + 1e-16f);
    for (float& c : out) c *= inverse;
  }
  FromBasis<float>(out);
  for (float& value : out) value *= norm;
}

}  // namespace kvcheck
