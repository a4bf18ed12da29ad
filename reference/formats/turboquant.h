// TurboQuant's MSE codec of one group, one f32 operation at a time (formats.md, section E).

#ifndef REFERENCE_FORMATS_TURBOQUANT_H_
#define REFERENCE_FORMATS_TURBOQUANT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/spec/profile.h"
#include "reference/spec/turboquant_format.h"

namespace kvcheck {

// How near to a threshold either code is right, times sqrt(d): sums in f32 of any order differ by
// less (formats.md, section E).
inline constexpr double kTurboquantBand = 0x1p-18;

// Where rows are rotated: the formats' way, and mistakes that a hint knows (turboquant_writers.h).
enum class TurboquantBasis { kSignsFirst, kSignsLast, kNotRotated };

class TurboquantGroup {
 public:
  TurboquantGroup(const TurboquantFormat& format, TurboquantWriter writer,
                  TurboquantBasis basis = TurboquantBasis::kSignsFirst);

  size_t d() const { return signs_.size(); }
  TurboquantWriter writer() const { return writer_; }
  std::span<const float> centroids() const { return centroids_; }
  std::span<const float> thresholds() const { return thresholds_; }
  std::span<const float> signs() const { return signs_; }

  // n = fl32(sqrt(sum x^2)), the sum in double by halves: term i + d/2 to term i, and so on. A NaN
  // comes as the positive quiet one.
  static float Norm(std::span<const float> x);
  // What x is divided by: max(n, 1e-6), in vLLM n + 1e-8, with the constants of f32.
  template <typename T>
  T Divisor(T norm) const;
  // Unit vectors to coordinates of the basis, and back.
  template <typename T>
  void ToBasis(std::span<T> u) const;
  template <typename T>
  void FromBasis(std::span<T> y) const;
  // Thresholds below y; in vLLM also those at y.
  uint8_t CodeOf(double y) const;
  // The codes of x; returns its norm.
  float Encode(std::span<const float> x, std::span<uint8_t> codes) const;
  // norm times the rotated-back centroids; vllm_nc: of these over their own norm.
  void Decode(std::span<const uint8_t> codes, float norm, std::span<float> out) const;

 private:
  TurboquantWriter writer_;
  TurboquantBasis basis_;
  std::span<const float> centroids_;
  std::vector<float> thresholds_;
  std::vector<float> signs_;
};

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_TURBOQUANT_H_
