// The steps of turboquant's codec, each of which a fault may replace; the defaults are those of
// reference/formats/turboquant.h.

#ifndef TOOLS_FAULTS_TURBOQUANT_STEPS_H_
#define TOOLS_FAULTS_TURBOQUANT_STEPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/formats/turboquant.h"
#include "reference/spec/case.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

struct TurboquantSteps {
  // In place of the rotation and its inverse, in place.
  void (*rotate)(const TurboquantGroup& group, std::span<float> u) = nullptr;
  void (*rotate_back)(const TurboquantGroup& group, std::span<float> y) = nullptr;
  uint8_t (*code)(const TurboquantGroup& group, float y) = nullptr;
  float (*centroid)(const TurboquantGroup& group, uint8_t code) = nullptr;
  float (*stored_norm)(const TurboquantGroup& group, float norm) = nullptr;
  float (*read_norm)(float norm) = nullptr;
  void (*pack)(std::span<const uint8_t> codes, int bits, std::span<uint32_t> words) = nullptr;
  void (*read)(std::span<float> values) = nullptr;  // of a group, at the end

  bool ReplacesEncoding() const { return rotate || code || stored_norm || pack; }
  bool ReplacesDecoding() const { return rotate_back || centroid || read_norm || read; }
};

// Precondition of both: a step is replaced.
TensorMap EncodeTurboquant(const TurboquantSteps& steps, const TurboquantFormat& format,
                           const Profile& profile, const CodecCase& c, const Tensor& x);
std::vector<double> DecodeTurboquant(const TurboquantSteps& steps, const TurboquantFormat& format,
                                     const Profile& profile, const TensorMap& stored);

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_TURBOQUANT_STEPS_H_
