#include "reference/spec/codec_choices.h"

#include <algorithm>
#include <array>

#include "reference/spec/enum_text.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr EnumNames<DecodeRounding, 3> kDecode = {{{DecodeRounding::kExact, "exact"},
                                                   {DecodeRounding::kTwoRoundings, "two_roundings"},
                                                   {DecodeRounding::kOneRounding, "one_rounding"}}};
constexpr EnumNames<AffineEncoder, 3> kEncode = {{{AffineEncoder::kMlxCpu, "mlx_cpu"},
                                                  {AffineEncoder::kMlxGpu, "mlx_gpu"},
                                                  {AffineEncoder::kKivi, "kivi"}}};
constexpr EnumNames<GgmlEncoder, 2> kGgml = {
    {{GgmlEncoder::kReference, "reference"}, {GgmlEncoder::kX86, "x86"}}};
constexpr EnumNames<Fp8Overflow, 3> kFp8 = {{{Fp8Overflow::kNan, "nan"},
                                             {Fp8Overflow::kSaturate, "saturate"},
                                             {Fp8Overflow::kSaturateAll, "saturate_all"}}};
constexpr EnumNames<MxEncoder, 5> kMx = {{{MxEncoder::kOcp, "ocp"},
                                          {MxEncoder::kUp, "up"},
                                          {MxEncoder::kMlx, "mlx"},
                                          {MxEncoder::kMlx031, "mlx_0_31"},
                                          {MxEncoder::kSglang, "sglang"}}};
constexpr EnumNames<Nvfp4Encoder, 3> kNvfp4 = {{{Nvfp4Encoder::kMlx, "mlx"},
                                                {Nvfp4Encoder::kVllm, "vllm"},
                                                {Nvfp4Encoder::kVllm4Over6, "vllm_4over6"}}};
constexpr EnumNames<TurboquantWriter, 3> kTurboquant = {{{TurboquantWriter::kMlxVlm, "mlx_vlm"},
                                                         {TurboquantWriter::kVllm, "vllm"},
                                                         {TurboquantWriter::kVllmNc, "vllm_nc"}}};
constexpr EnumNames<TokenEncoder, 3> kToken = {{{TokenEncoder::kDivide, "divide"},
                                                {TokenEncoder::kVllm, "vllm"},
                                                {TokenEncoder::kVllmTruncate, "vllm_truncate"}}};

constexpr EnumNames<ChannelWriter, 3> kChannel = {{{ChannelWriter::kKivi, "kivi"},
                                                   {ChannelWriter::kHqq, "hqq"},
                                                   {ChannelWriter::kOpenvino, "openvino"}}};

template <auto kMember, const auto& kNames>
constexpr CodecField Row(CodecChoice choice, std::string_view key, std::string_view formats,
                         LeftOut left_out, ActsOn acts_on, size_t expected = kNames.size()) {
  CodecField field;
  field.choice = choice;
  field.key = key;
  field.formats = formats;
  field.left_out = left_out;
  field.expected = expected;
  field.acts_on = acts_on;
  field.value = [](const Profile& profile) { return NameIn(kNames, profile.*kMember); };
  field.parse = [](Piece text, Profile* profile) { profile->*kMember = ParseEnum(kNames, text); };
  field.copy = [](const Profile& from, Profile* to) { to->*kMember = from.*kMember; };
  field.variants = [](const Profile& profile) {
    std::vector<Profile> all(kNames.size(), profile);
    for (size_t i = 0; i < all.size(); ++i) all[i].*kMember = kNames[i].first;
    return all;
  };
  return field;
}

constexpr std::array<CodecField, 9> kFields = {
    Row<&Profile::decode, kDecode>(CodecChoice::kDecode, "decode",
                                   "formats whose values are rounded", LeftOut::kLoosest,
                                   ActsOn::kDecoding),
    // MLX's: who compares rows of MLX means no wider bound.
    Row<&Profile::encode, kEncode>(CodecChoice::kEncode, "encode", "affine formats", LeftOut::kAny,
                                   ActsOn::kEncoding, 2),
    Row<&Profile::ggml_encode, kGgml>(CodecChoice::kGgmlEncode, "ggml_encode", "ggml formats",
                                      LeftOut::kAny, ActsOn::kEncoding),
    Row<&Profile::fp8_overflow, kFp8>(CodecChoice::kFp8Overflow, "fp8_overflow", "fp8 formats",
                                      LeftOut::kDefault, ActsOn::kEncoding),
    Row<&Profile::mx_encode, kMx>(CodecChoice::kMxEncode, "mx_encode", "mxfp4 and mxfp8",
                                  LeftOut::kAny, ActsOn::kEncoding),
    Row<&Profile::nvfp4_encode, kNvfp4>(CodecChoice::kNvfp4Encode, "nvfp4_encode", "nvfp4",
                                        LeftOut::kAny, ActsOn::kEncoding),
    Row<&Profile::turboquant, kTurboquant>(CodecChoice::kTurboquant, "turboquant",
                                           "turboquant formats", LeftOut::kDefault, ActsOn::kBoth),
    Row<&Profile::token_encode, kToken>(CodecChoice::kTokenEncode, "token_encode",
                                        "formats with a scale per token", LeftOut::kAny,
                                        ActsOn::kEncoding),
    Row<&Profile::channel, kChannel>(CodecChoice::kChannel, "channel", "formats per channel",
                                     LeftOut::kDefault, ActsOn::kBoth),
};

}  // namespace

std::span<const CodecField> CodecFields() { return kFields; }

const CodecField& FieldOf(CodecChoice choice) {
  const auto* row = std::find_if(kFields.begin(), kFields.end(),
                                 [&](const CodecField& field) { return field.choice == choice; });
  KVCHECK_CHECK(row != kFields.end(), "a codec choice without a row");
  return *row;
}

const CodecField* FindCodecField(std::string_view key) {
  const auto* row = std::find_if(kFields.begin(), kFields.end(),
                                 [&](const CodecField& field) { return field.key == key; });
  return row == kFields.end() ? nullptr : row;
}

std::string Print(const CodecField& field, const Profile& profile) {
  return std::string(field.key) + "=" + std::string(field.value(profile));
}

std::vector<Profile> ExpectedVariants(const CodecField& field, const Profile& profile) {
  std::vector<Profile> variants = field.variants(profile);
  variants.resize(field.expected);
  return variants;
}

std::string ExpectedValues(const CodecField& field) {
  const std::vector<Profile> variants = ExpectedVariants(field, Profile());
  std::string text;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (i > 0) text += i + 1 == variants.size() ? " or " : ", ";
    text += field.value(variants[i]);
  }
  return text;
}

}  // namespace kvcheck
