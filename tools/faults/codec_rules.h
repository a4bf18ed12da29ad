// The reference codec as named steps, each of which a fault may replace. The defaults are the
// definition of reference/formats; without a replaced step a FaultyCodec is the reference codec.

#ifndef TOOLS_FAULTS_CODEC_RULES_H_
#define TOOLS_FAULTS_CODEC_RULES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "reference/formats/affine.h"
#include "reference/spec/case.h"
#include "reference/spec/implementation.h"
#include "reference/spec/profile.h"
#include "tools/faults/turboquant_steps.h"

namespace kvcheck {

// Steps of encoding one affine group, in f32, as EncodeAffineGroup of reference/formats/affine.h
// names them.
struct AffineSteps {
  float (*levels)(int bits) = nullptr;                                      // n
  void (*range)(std::span<const float> x, float* mn, float* mx) = nullptr;  // of the group
  float (*round)(AffineEncoder encoder, float x) = nullptr;
  // Whether the step is chosen so that zero has an integer code.
  bool keeps_zero = true;
  // What the scale is stored as, before it is rounded to its type.
  void (*stored)(DType scale_dtype, AffineGroup* group) = nullptr;
  uint8_t (*code)(float rounded, float n) = nullptr;  // from the rounded number of steps
};

// Steps of codes of 8 bits with a scale, in f32; all but the last of encoding a vector.
struct ScaledSteps {
  float (*scale)(const ScaledFormat& format, float largest) = nullptr;  // of the vector, or given
  float (*position)(float x, float scale) = nullptr;                    // in place of x / s
  float (*round)(float position) = nullptr;          // of integers, in place of nearest even
  bool clamps = true;                                // positions, within the largest code
  ScaledCode (*read_as)(ScaledCode code) = nullptr;  // what a reader takes the codes for
  bool IsReplaced() const {
    return scale != nullptr || position != nullptr || round != nullptr || !clamps;
  }
};

struct CodecRules {
  AffineSteps affine = {};
  TurboquantSteps turboquant = {};
  // What is taken for the profile, and for the format: one of the same planes.
  void (*profile)(Profile* profile) = nullptr;
  KvFormat (*format)(const KvFormat& format) = nullptr;
  ScaledSteps scaled = {};
  // Whole rows, in place of every other step of encoding.
  TensorMap (*encode)(const CodecCase& c, const Profile& profile, const Tensor& x) = nullptr;
  // The value of a nibble under a stored scale, in place of (c - z) times the masked scale.
  float (*nibble)(uint32_t stored, int code) = nullptr;
  // The stored value of an element of a plain format, in place of one rounding to the type.
  double (*store)(DType dtype, const Profile& profile, double x) = nullptr;
  // Changes the planes that were stored (encoding) or that are about to be read (decoding). In a
  // round trip it is called once.
  void (*tensors)(const CodecCase& c, TensorMap* stored) = nullptr;
  // Of formats of one plane of blocks, each encoded block beside its values, rounded to the row
  // type.
  void (*block)(const KvFormat& format, std::span<const double> x, std::byte* block) = nullptr;
  // The value of a code under a group's scale and bias, in place of c S + B.
  double (*value)(const AffineFormat& format, const Profile& profile, uint8_t code, double scale,
                  double bias) = nullptr;
  // The group whose scale and bias a channel takes, in place of channel / group size.
  int64_t (*group_of)(int64_t channel, int64_t group_size, int64_t groups) = nullptr;
};

class FaultyCodec : public Implementation {
 public:
  FaultyCodec(const CodecRules& rules, const Profile& profile) : rules_(rules), profile_(profile) {}
  Capabilities GetCapabilities() const override;
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override;

 private:
  TensorMap Encode(const PlainFormat& format, const CodecCase& c, const Tensor& x) const;
  TensorMap Encode(const AffineFormat& format, const CodecCase& c, const Tensor& x) const;
  TensorMap Encode(const TurboquantFormat& format, const CodecCase& c, const Tensor& x) const;
  TensorMap Encode(const ScaledFormat& format, const CodecCase& c, const Tensor& x) const;
  std::vector<double> Decode(const AffineFormat& format, const CodecCase& c,
                             const TensorMap& stored) const;
  std::vector<double> Decode(const TurboquantFormat& format, const CodecCase& c,
                             const TensorMap& stored) const;
  std::vector<double> Decode(const ScaledFormat& format, const CodecCase& c,
                             const TensorMap& stored) const;
  std::vector<double> Decode(const Int4zpFormat& format, const CodecCase& c,
                             const TensorMap& stored) const;
  // Families none of whose steps can be replaced, but for what becomes of a block.
  template <typename Format>
  TensorMap Encode(const Format& format, const CodecCase& c, const Tensor& x) const;
  template <typename Format>
  std::vector<double> Decode(const Format& format, const CodecCase& c,
                             const TensorMap& stored) const;

  CodecRules rules_;
  Profile profile_;
};

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_CODEC_RULES_H_
