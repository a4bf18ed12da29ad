// The profile: which of the declared conventions an implementation follows where the definition
// leaves a choice. Stated by the implementation, stored beside its outputs, printed with every
// verdict.
//
// Text: fields of `key=value`, separated by one space ("decode=two_roundings encode=mlx_gpu"); a
// field left out has the first value of its enum. Keys, values and what they mean:
// reference/README.md, section 3.6; those of codecs: codec_choices.h.

#ifndef REFERENCE_SPEC_PROFILE_H_
#define REFERENCE_SPEC_PROFILE_H_

#include <string>
#include <string_view>

namespace kvcheck {

enum class MaskedRow { kZero, kNan, kMean, kAny };
enum class MaskValueKind { kMinusInfinity, kLowest, kNumber };
enum class DecodeRounding { kExact, kTwoRoundings, kOneRounding };
enum class AffineEncoder { kMlxCpu, kMlxGpu, kKivi };
enum class GgmlEncoder { kReference, kX86 };
enum class Fp8Overflow { kNan, kSaturate, kSaturateAll };
enum class MxEncoder { kOcp, kUp, kMlx, kMlx031, kSglang };
enum class Nvfp4Encoder { kMlx, kVllm, kVllm4Over6 };
enum class TurboquantWriter { kMlxVlm, kVllm, kVllmNc };
enum class TokenEncoder { kDivide, kVllm, kVllmTruncate };
enum class ChannelWriter { kKivi, kHqq, kOpenvino };

struct Profile {
  MaskedRow masked_row = MaskedRow::kZero;
  MaskValueKind mask_value = MaskValueKind::kMinusInfinity;
  double mask_number = 0;  // for kNumber
  bool maximum_over_all = false;
  DecodeRounding decode = DecodeRounding::kExact;
  AffineEncoder encode = AffineEncoder::kMlxCpu;
  GgmlEncoder ggml_encode = GgmlEncoder::kReference;
  Fp8Overflow fp8_overflow = Fp8Overflow::kNan;
  MxEncoder mx_encode = MxEncoder::kOcp;
  Nvfp4Encoder nvfp4_encode = Nvfp4Encoder::kMlx;
  TurboquantWriter turboquant = TurboquantWriter::kMlxVlm;
  TokenEncoder token_encode = TokenEncoder::kDivide;
  ChannelWriter channel = ChannelWriter::kKivi;
  bool operator==(const Profile&) const = default;
};

// Only the fields that differ from the defaults; "" for the default profile.
std::string Print(const Profile& profile);
// Errors: kParse with the column.
Profile ParseProfile(std::string_view text);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PROFILE_H_
