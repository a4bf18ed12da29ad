#include "reference/spec/profile.h"

#include <vector>

#include "reference/spec/enum_text.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

constexpr EnumNames<MaskedRow, 4> kMaskedRow = {{{MaskedRow::kZero, "zero"},
                                                 {MaskedRow::kNan, "nan"},
                                                 {MaskedRow::kMean, "mean"},
                                                 {MaskedRow::kAny, "any"}}};
constexpr EnumNames<DecodeRounding, 3> kDecode = {{{DecodeRounding::kExact, "exact"},
                                                   {DecodeRounding::kTwoRoundings, "two_roundings"},
                                                   {DecodeRounding::kOneRounding, "one_rounding"}}};
constexpr EnumNames<AffineEncoder, 2> kEncode = {
    {{AffineEncoder::kMlxCpu, "mlx_cpu"}, {AffineEncoder::kMlxGpu, "mlx_gpu"}}};
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
constexpr EnumNames<bool, 2> kMaximum = {{{false, "visible"}, {true, "all"}}};

}  // namespace

std::string_view Name(DecodeRounding decode) { return NameIn(kDecode, decode); }
std::string_view Name(AffineEncoder encode) { return NameIn(kEncode, encode); }
std::string_view Name(GgmlEncoder encode) { return NameIn(kGgml, encode); }
std::string_view Name(Fp8Overflow overflow) { return NameIn(kFp8, overflow); }
std::string_view Name(MxEncoder encode) { return NameIn(kMx, encode); }
std::string_view Name(Nvfp4Encoder encode) { return NameIn(kNvfp4, encode); }
std::string_view Name(TurboquantWriter writer) { return NameIn(kTurboquant, writer); }
std::string_view Name(TokenEncoder encode) { return NameIn(kToken, encode); }

DecodeRounding ParseDecodeRounding(Piece piece) { return ParseEnum(kDecode, piece); }
AffineEncoder ParseAffineEncoder(Piece piece) { return ParseEnum(kEncode, piece); }
GgmlEncoder ParseGgmlEncoder(Piece piece) { return ParseEnum(kGgml, piece); }
Fp8Overflow ParseFp8Overflow(Piece piece) { return ParseEnum(kFp8, piece); }
MxEncoder ParseMxEncoder(Piece piece) { return ParseEnum(kMx, piece); }
Nvfp4Encoder ParseNvfp4Encoder(Piece piece) { return ParseEnum(kNvfp4, piece); }
TurboquantWriter ParseTurboquantWriter(Piece piece) { return ParseEnum(kTurboquant, piece); }
TokenEncoder ParseTokenEncoder(Piece piece) { return ParseEnum(kToken, piece); }

std::string Print(const Profile& profile) {
  const Profile defaults;
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) {
    if (!text.empty()) text += ' ';
    text += std::string(key) + "=" + std::string(value);
  };
  if (profile.masked_row != defaults.masked_row) {
    add("masked_row", NameIn(kMaskedRow, profile.masked_row));
  }
  if (profile.mask_value == MaskValueKind::kLowest) add("mask_value", "lowest");
  if (profile.mask_value == MaskValueKind::kNumber) {
    add("mask_value", PrintReal(profile.mask_number));
  }
  if (profile.maximum_over_all) add("maximum", "all");
  if (profile.decode != defaults.decode) add("decode", Name(profile.decode));
  if (profile.encode != defaults.encode) add("encode", Name(profile.encode));
  if (profile.ggml_encode != defaults.ggml_encode) add("ggml_encode", Name(profile.ggml_encode));
  if (profile.fp8_overflow != defaults.fp8_overflow) {
    add("fp8_overflow", Name(profile.fp8_overflow));
  }
  if (profile.mx_encode != defaults.mx_encode) add("mx_encode", Name(profile.mx_encode));
  if (profile.nvfp4_encode != defaults.nvfp4_encode) {
    add("nvfp4_encode", Name(profile.nvfp4_encode));
  }
  if (profile.turboquant != defaults.turboquant) add("turboquant", Name(profile.turboquant));
  if (profile.token_encode != defaults.token_encode) {
    add("token_encode", Name(profile.token_encode));
  }
  return text;
}

Profile ParseProfile(std::string_view text) {
  Profile profile;
  Fields fields(WholeLine(text),
                "masked_row, mask_value, maximum, decode, encode, ggml_encode, fp8_overflow, "
                "mx_encode, nvfp4_encode, turboquant, token_encode");
  Piece value;
  if (fields.TakeIf("masked_row", &value)) profile.masked_row = ParseEnum(kMaskedRow, value);
  if (fields.TakeIf("mask_value", &value)) {
    if (value.text == "-inf") {
      profile.mask_value = MaskValueKind::kMinusInfinity;
    } else if (value.text == "lowest") {
      profile.mask_value = MaskValueKind::kLowest;
    } else {
      profile.mask_value = MaskValueKind::kNumber;
      profile.mask_number = ParseReal(value);
    }
  }
  if (fields.TakeIf("maximum", &value)) profile.maximum_over_all = ParseEnum(kMaximum, value);
  if (fields.TakeIf("decode", &value)) profile.decode = ParseDecodeRounding(value);
  if (fields.TakeIf("encode", &value)) profile.encode = ParseAffineEncoder(value);
  if (fields.TakeIf("ggml_encode", &value)) profile.ggml_encode = ParseGgmlEncoder(value);
  if (fields.TakeIf("fp8_overflow", &value)) profile.fp8_overflow = ParseFp8Overflow(value);
  if (fields.TakeIf("mx_encode", &value)) profile.mx_encode = ParseMxEncoder(value);
  if (fields.TakeIf("nvfp4_encode", &value)) profile.nvfp4_encode = ParseNvfp4Encoder(value);
  if (fields.TakeIf("turboquant", &value)) profile.turboquant = ParseTurboquantWriter(value);
  if (fields.TakeIf("token_encode", &value)) profile.token_encode = ParseTokenEncoder(value);
  fields.Finish();
  return profile;
}

}  // namespace kvcheck
