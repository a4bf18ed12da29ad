// The codecs of optimized/formats as an implementation of codec cases. It follows one profile:
// encode=mlx_cpu, fp8_overflow=nan, and affine rows decoded with decode=two_roundings, each
// rounding to the row type; where it is asked for, encode=kivi. It declines cases of another one.

#ifndef OPTIMIZED_FORMATS_CODEC_IMPLEMENTATION_H_
#define OPTIMIZED_FORMATS_CODEC_IMPLEMENTATION_H_

#include <optional>

#include "reference/spec/implementation.h"

namespace kvcheck {

class OptimizedCodec : public Implementation {
 public:
  // profile: that of the question.
  explicit OptimizedCodec(const Profile& profile) : profile_(profile) {}
  static Profile StatedProfile();

  Capabilities GetCapabilities() const override;
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override;
  const Profile* AnswerProfile() const override { return answer_ ? &*answer_ : nullptr; }

 private:
  Profile profile_;
  std::optional<Profile> answer_;  // where it is not the one stated
};

}  // namespace kvcheck

#endif  // OPTIMIZED_FORMATS_CODEC_IMPLEMENTATION_H_
