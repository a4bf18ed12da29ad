#include "tools/faults/codec_faults.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "reference/formats/plain.h"
#include "reference/formats/scaled_codes.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

// Rules of the affine encoder.
float OneLevelMore(int bits) { return static_cast<float>(1 << bits); }
float FourLevels(int) { return 3; }
float Down(AffineEncoder, float x) { return std::floor(x); }
float OtherTies(AffineEncoder encoder, float x) {
  return encoder == AffineEncoder::kMlxCpu ? std::round(x) : std::nearbyint(x);
}
void FirstHalf(std::span<const float> x, float* mn, float* mx) {
  const auto [least, most] = std::minmax_element(x.begin(), x.begin() + std::ssize(x) / 2);
  *mn = *least;
  *mx = *most;
}
void Symmetric(std::span<const float> x, float* mn, float* mx) {
  *mx = 0;
  for (const float value : x) *mx = std::max(*mx, std::fabs(value));
  *mn = -*mx;
}
void ScaleInOtherHalf(DType scale_dtype, AffineGroup* group) {
  const DType other = scale_dtype == DType::kBFloat16 ? DType::kFloat16 : DType::kBFloat16;
  group->scale = static_cast<float>(RoundTo(other, static_cast<double>(group->scale)));
}
void ScaleWithoutSign(DType, AffineGroup* group) { group->scale = std::fabs(group->scale); }
uint8_t Wrapped(float rounded, float n) {
  return std::isfinite(rounded)
             ? static_cast<uint8_t>(static_cast<int64_t>(rounded) & static_cast<int64_t>(n))
             : uint8_t{0};
}

// Rules of stored tensors.
Tensor* Find(TensorMap* stored, const std::string& plane) {
  const auto found = stored->find(plane);
  return found == stored->end() ? nullptr : &found->second;
}
// Of packed affine codes.
Tensor* WordsOf(const CodecCase& c, TensorMap* stored) {
  if (!GridOf(c.format)) return nullptr;
  Tensor* codes = Find(stored, "codes");
  return codes != nullptr && codes->dtype == DType::kUInt32 ? codes : nullptr;
}
void EditWords(const CodecCase& c, TensorMap* stored, uint32_t (*edit)(uint32_t, int bits)) {
  Tensor* words = WordsOf(c, stored);
  if (words == nullptr) return;
  const auto highest = static_cast<uint64_t>(GridOf(c.format)->highest);
  const auto bits = static_cast<int>(std::bit_width(highest));
  for (int64_t i = 0; i < words->ElementCount(); ++i) {
    uint32_t& word = words->As<uint32_t>()[i];
    word = edit(word, bits);
  }
}
uint32_t BigEndian(uint32_t word, int) {
  return word << 24 | (word & 0xff00u) << 8 | (word >> 8 & 0xff00u) | word >> 24;
}
uint32_t HighFirst(uint32_t word, int bits) {
  uint32_t turned = 0;
  for (int at = 0; at + bits <= 32; at += bits) {
    const uint32_t code = word >> at & ((1u << bits) - 1);
    turned |= code << (32 - bits - at);
  }
  return 32 % bits == 0 ? turned : word;
}
// Even channels in the low half of a word, odd ones in the high half.
uint32_t EvenThenOdd(uint32_t word, int bits) {
  if (32 % bits != 0) return word;
  uint32_t turned = 0;
  const int count = 32 / bits;
  for (int i = 0; i < count; ++i) {
    const int to = i % 2 == 0 ? i / 2 : count / 2 + i / 2;
    turned |= (word >> (i * bits) & ((1u << bits) - 1)) << (to * bits);
  }
  return turned;
}
void WordsBigEndian(const CodecCase& c, TensorMap* stored) { EditWords(c, stored, BigEndian); }
void WordsHighFirst(const CodecCase& c, TensorMap* stored) { EditWords(c, stored, HighFirst); }
void WordsInterleaved(const CodecCase& c, TensorMap* stored) { EditWords(c, stored, EvenThenOdd); }
void LastWordZero(const CodecCase& c, TensorMap* stored) {
  Tensor* words = WordsOf(c, stored);
  if (words != nullptr) words->As<uint32_t>()[words->ElementCount() - 1] = 0;
}
void ScalesAndBiasesSwapped(const CodecCase&, TensorMap* stored) {
  Tensor* scales = Find(stored, "scales");
  Tensor* biases = Find(stored, "biases");
  if (scales != nullptr && biases != nullptr) std::swap(*scales, *biases);
}
void ScalesOfFirstRow(const CodecCase& c, TensorMap* stored) {
  Tensor* scales = Find(stored, "scales");
  if (scales == nullptr || Find(stored, "biases") == nullptr) return;
  std::vector<std::byte>& bytes = scales->bytes;
  const size_t row = bytes.size() / static_cast<size_t>(c.rows);
  for (size_t at = row; at < bytes.size(); ++at) bytes[at] = bytes[at - row];
}
void RowsReversed(const CodecCase& c, TensorMap* stored) {
  Tensor* words = WordsOf(c, stored);
  if (words == nullptr) return;
  std::vector<std::byte>& bytes = words->bytes;
  const auto row = static_cast<std::ptrdiff_t>(bytes.size()) / c.rows;
  const std::vector<std::byte> right = bytes;
  for (int64_t r = 0; r < c.rows; ++r) {
    std::copy_n(right.begin() + r * row, row, bytes.end() - (r + 1) * row);
  }
}
void BytesOfHalfSwapped(const CodecCase& c, TensorMap* stored) {
  if (!IsPlain(c.format)) return;
  Tensor& codes = stored->at("codes");
  if (SizeInBytes(codes.dtype) != 2) return;
  for (size_t i = 0; i + 1 < codes.bytes.size(); i += 2) {
    std::swap(codes.bytes[i], codes.bytes[i + 1]);
  }
}
// One fp8 type for the other, by its bits.
void OtherFp8(const CodecCase& c, TensorMap* stored) {
  if (!IsPlain(c.format)) return;
  Tensor& codes = stored->at("codes");
  const bool e5 = codes.dtype == DType::kFloat8E5M2;
  if (!e5 && codes.dtype != DType::kFloat8E4M3FN) return;
  Tensor other = codes;
  other.dtype = e5 ? DType::kFloat8E4M3FN : DType::kFloat8E5M2;
  std::vector<double> values(static_cast<size_t>(codes.ElementCount()));
  DecodeTo(other, 0, values);
  ConvertRule rule;
  rule.overflow = Overflow::kSaturate;
  EncodeFrom(values, codes.dtype, codes.bytes.data(), rule);
}

// Rules of small floats in blocks: of MX where scales are powers of two, else of NVFP4.
bool IsMx(const CodecCase& c) { return Leaves(c.format, CodecChoice::kMxEncode); }
bool IsNvfp4(const CodecCase& c) { return Leaves(c.format, CodecChoice::kNvfp4Encode); }
void OcpRoundedUp(Profile* profile) { profile->mx_encode = MxEncoder::kUp; }
void OcpToNearest(Profile* profile) { profile->mx_encode = MxEncoder::kMlx031; }
void OcpTiesUp(Profile* profile) { profile->mx_encode = MxEncoder::kSglang; }
void TakesVllm(Profile* profile) { profile->nvfp4_encode = Nvfp4Encoder::kVllm; }
void TakesFourOverSix(Profile* profile) { profile->nvfp4_encode = Nvfp4Encoder::kVllm4Over6; }
void HighNibbleFirst(const CodecCase& c, TensorMap* stored) {
  Tensor* codes = Find(stored, "codes");
  if (!IsMx(c) || codes == nullptr || codes->ElementCount() * 2 != c.rows * c.head_dim) return;
  for (std::byte& byte : codes->bytes) byte = byte << 4 | byte >> 4;
}
void LastBlockZero(const CodecCase& c, TensorMap* stored) {
  Tensor* codes = Find(stored, "codes");
  if (!IsMx(c) || codes == nullptr) return;
  const auto block =
      codes->bytes.size() / static_cast<size_t>(c.rows * c.head_dim / BlockOf(c.format));
  std::fill(codes->bytes.end() - static_cast<std::ptrdiff_t>(block), codes->bytes.end(),
            std::byte{0});
}
// One scale for two blocks, as if these were twice as long.
void ScalesOfPairs(const CodecCase& c, TensorMap* stored) {
  Tensor* scales = Find(stored, "scales");
  if (!IsMx(c) || scales == nullptr) return;
  for (size_t i = 1; i < scales->bytes.size(); i += 2) scales->bytes[i] = scales->bytes[i - 1];
}
// The place of the scale of row t and block s in the layout that vLLM gives V on SM100.
void ScalesSwizzled(const CodecCase& c, TensorMap* stored) {
  Tensor* scales = Find(stored, "scales");
  const int64_t blocks = c.head_dim / BlockOf(c.format);
  if (!IsNvfp4(c) || scales == nullptr || blocks % 4 != 0) return;
  const std::vector<std::byte> linear = scales->bytes;
  for (int64_t t = 0; t < c.rows / 4 * 4; ++t) {
    for (int64_t s = 0; s < blocks; ++s) {
      const int64_t row = t / 4 * 4 + s / (blocks / 4);
      const int64_t column = s % (blocks / 4) * 4 + t % 4;
      scales->bytes[static_cast<size_t>(row * blocks + column)] =
          linear[static_cast<size_t>(t * blocks + s)];
    }
  }
}
// The same record with another global scale.
template <typename Change>
KvFormat WithGlobalScale(const KvFormat& format, Change change) {
  return std::visit(
      [&](auto family) {
        if constexpr (requires { family.global_scale; }) change(&family.global_scale);
        return KvFormat(family);
      },
      format);
}
KvFormat InverseGlobalScale(const KvFormat& format) {
  return WithGlobalScale(format, [](float* scale) { *scale = 1 / *scale; });
}
KvFormat NoGlobalScale(const KvFormat& format) {
  return WithGlobalScale(format, [](float* scale) { *scale = 1; });
}
KvFormat OtherConvention(const KvFormat& format) {
  return WithGlobalScale(format, [](float* scale) { *scale = *scale == 1 ? 1 : *scale / 6; });
}

// Rules of the value of a code.
double TwoBits(const AffineFormat&, const Profile&, uint8_t code, double scale, double bias) {
  return (code & 3) * scale + bias;
}
double Signed(const AffineFormat& format, const Profile&, uint8_t code, double scale, double bias) {
  const int half = 1 << (format.bits - 1);
  return (code >= half ? code - 2 * half : code) * scale + bias;
}
double ZeroPoint(const AffineFormat&, const Profile&, uint8_t code, double scale, double bias) {
  return (code - bias) * scale;
}
double BiasSubtracted(const AffineFormat&, const Profile&, uint8_t code, double scale,
                      double bias) {
  return code * scale - bias;
}
double NoBias(const AffineFormat&, const Profile&, uint8_t code, double scale, double) {
  return code * scale;
}
double NoScale(const AffineFormat&, const Profile&, uint8_t code, double, double bias) {
  return code + bias;
}
double ProductRounded(const AffineFormat& format, const Profile& profile, uint8_t code,
                      double scale, double bias) {
  const bool twice = profile.decode == DecodeRounding::kTwoRoundings;
  return (twice ? code * scale : RoundTo(format.scale_dtype, code * scale)) + bias;
}
int64_t FirstGroup(int64_t, int64_t, int64_t) { return 0; }
int64_t OneChannelLate(int64_t channel, int64_t group_size, int64_t) {
  return std::max<int64_t>(0, channel - 1) / group_size;
}
int64_t Interleaved(int64_t channel, int64_t, int64_t groups) { return channel % groups; }

// Rules of plain storage.
double Stored(DType dtype, const Profile& profile, double x, Rounding rounding) {
  ConvertRule rule = StoreRule(dtype, profile);
  rule.rounding = rounding;
  return RoundTo(dtype, x, rule);
}
double Truncated(DType dtype, const Profile& profile, double x) {
  return Stored(dtype, profile, x, Rounding::kTowardZero);
}
double TiesAway(DType dtype, const Profile& profile, double x) {
  return Stored(dtype, profile, x, Rounding::kNearestAway);
}
double ByWayOfBf16(DType, const Profile&, double x) { return RoundTo(DType::kBFloat16, x); }
double ByWayOfF16(DType, const Profile&, double x) { return RoundTo(DType::kFloat16, x); }
double Saturated(DType dtype, const Profile&, double x) {
  return std::isinf(x)
             ? x
             : std::clamp(x, -FloatTypeOf(dtype).largest_finite, FloatTypeOf(dtype).largest_finite);
}
double Flushed(DType dtype, const Profile& profile, double x) {
  const double stored = Stored(dtype, profile, x, Rounding::kNearestEven);
  return std::fabs(stored) < FloatTypeOf(dtype).smallest_normal ? std::copysign(0.0, x) : x;
}
double WithoutMinusZero(DType dtype, const Profile& profile, double x) {
  return Stored(dtype, profile, x, Rounding::kNearestEven) == 0 ? 0.0 : x;
}
double Largest240(DType dtype, const Profile&, double x) {
  return dtype == DType::kFloat8E4M3FN ? std::clamp(x, -240.0, 240.0) : x;
}
double Halved(DType dtype, const Profile&, double x) {
  return dtype == DType::kFloat8E4M3FN ? x / 2 : x;
}
double WithoutSign(DType, const Profile&, double x) { return std::fabs(x); }

// Rules of codes of 8 bits with a scale.
// The largest field of e4m3fn is NaN.
float Scale480(const ScaledFormat& format, float largest) {
  if (!format.IsDynamic()) return format.scale;
  const bool e4m3 = format.code == ScaledCode::kE4M3FN;
  return largest / static_cast<float>(e4m3 ? 480 : LargestOf(format.code));
}
float ScaleOfOne(const ScaledFormat&, float) { return 1; }
float ByReciprocal(float x, float scale) {
  const float reciprocal = 1.0f / scale;
  return x * reciprocal;
}
float Truncated8(float position) { return std::trunc(position); }
float HalfAway(float position) { return std::round(position); }
// Cells are copied as if they had no room for a scale: each begins 4 bytes too early.
void CellsWithoutRoom(const CodecCase& c, TensorMap* stored) {
  Tensor* cells = Find(stored, "cells");
  if (cells == nullptr) return;
  const size_t cell = cells->bytes.size() / static_cast<size_t>(c.rows);
  const std::vector<std::byte> right = cells->bytes;
  for (size_t r = 1; r < static_cast<size_t>(c.rows); ++r) {
    for (size_t i = 0; i < cell; ++i) {
      cells->bytes[r * cell + i] = right[r * (cell - 4) + i];
    }
  }
}
ScaledCode OcpForFnuz(ScaledCode code) {
  if (code == ScaledCode::kE4M3FNUZ) return ScaledCode::kE4M3FN;
  return code == ScaledCode::kE5M2FNUZ ? ScaledCode::kE5M2 : code;
}
// Rules of nibbles with a zero point in the scale.
float MaskedZeroPoint(uint32_t stored, int code) {
  return static_cast<float>(code) * std::bit_cast<float>(stored & ~15u);
}
float UnmaskedScale(uint32_t stored, int code) {
  return static_cast<float>(code - static_cast<int>(stored & 15)) * std::bit_cast<float>(stored);
}

constexpr std::string_view kEncode =
    "codec encode affine codes bytes | codec encode affine scales bytes | codec encode affine "
    "scales special_value | codec encode affine biases bytes | codec round_trip affine y bound";
constexpr std::string_view kDecode =
    "codec decode affine y bytes | codec decode affine y special_value | codec round_trip affine y "
    "bound";
constexpr std::string_view kPlain =
    "codec encode plain codes bytes | codec encode plain codes special_value | codec round_trip "
    "plain y bound | codec round_trip plain y special_value";
constexpr std::string_view kPlainBits =
    "codec encode plain codes bytes | codec encode plain codes special_value | codec decode plain "
    "y "
    "bytes | codec decode plain y special_value | codec round_trip plain y bound | codec "
    "round_trip "
    "plain y special_value";
constexpr std::string_view kWords =
    "codec encode affine codes bytes | codec decode affine y bytes | "
    "codec round_trip affine y bound";
constexpr std::string_view kScales =
    "codec encode affine scales bytes | codec encode affine biases "
    "bytes | codec decode affine y bytes | codec round_trip affine "
    "y bound | codec encode fp8 scales bytes | codec encode int8 scales bytes | codec encode "
    "int4zp scales bytes | codec decode fp8 y bytes | codec decode int8 y bytes | codec decode "
    "int4zp y bytes | codec round_trip fp8 y bound | codec round_trip int8 y bound | codec "
    "round_trip int4zp y bound";

constexpr std::string_view kScaled =
    "codec encode fp8 codes bytes | codec encode fp8 scales bytes | codec encode fp8 cells bytes | "
    "codec encode int8 codes bytes | codec encode int8 scales bytes | codec encode int8 cells "
    "bytes | codec decode fp8 y bytes | codec decode int8 y bytes | codec round_trip fp8 y bound | "
    "codec round_trip int8 y bound | codec decode fp8 y special_value | codec round_trip fp8 y "
    "special_value | codec decode int8 y special_value";
constexpr std::string_view kNibbles =
    "codec decode int4zp y bytes | codec decode int4zp y special_value | codec round_trip int4zp y "
    "bound";
constexpr std::string_view kCells =
    "codec encode fp8 cells bytes | codec encode int8 cells bytes | codec encode int4zp cells "
    "bytes "
    "| codec decode fp8 y bytes | codec decode int8 y bytes | codec decode int4zp y bytes | codec "
    "decode fp8 y special_value | codec decode int8 y special_value | codec decode int4zp y "
    "special_value | codec round_trip fp8 y bound | codec round_trip int8 y bound | codec "
    "round_trip int4zp y bound | codec round_trip fp8 y special_value | codec round_trip int8 y "
    "special_value | codec round_trip int4zp y special_value | "
    "codec decode fp8 y bound | codec decode int8 y bound | codec decode int4zp y bound";

constexpr std::string_view kMxWritten =
    "codec encode mxfp codes bytes | codec encode mxfp scales bytes | codec round_trip mxfp y "
    "bound";
constexpr std::string_view kMxStored =
    "codec encode mxfp codes bytes | codec encode mxfp scales bytes | codec decode mxfp y bytes | "
    "codec decode mxfp y special_value | codec round_trip mxfp y bound";
constexpr std::string_view kNvfp4Written =
    "codec encode nvfp4 codes bytes | codec encode nvfp4 scales bytes | codec round_trip nvfp4 y "
    "bound";
constexpr std::string_view kNvfp4Stored =
    "codec encode nvfp4 codes bytes | codec encode nvfp4 scales bytes | codec decode nvfp4 y bytes "
    "| codec decode nvfp4 y special_value | codec round_trip nvfp4 y bound";
constexpr std::string_view kMxBlock =
    "codec op=encode format=mxfp4:bf16 x=bf16 rows=1 d=32 data=gauss:3";
constexpr std::string_view kGlobalBlock =
    "codec op=decode format=nvfp4:x0.011:bf16 x=bf16 rows=1 d=16 data=gauss:1";

constexpr std::string_view kOneGroup =
    "codec op=encode format=affine:5:g32:f32 x=f32 rows=1 d=32 data=gauss:1";
constexpr std::string_view kOneCodedGroup =
    "codec op=decode format=affine:6:g32:f32 x=f64 rows=1 d=32 data=gauss:1";
constexpr std::string_view kTwoCodedGroups =
    "codec op=decode format=affine:8:g64:f16 x=f32 rows=1 d=128 data=gauss:1";

constexpr CodecFault kFaults[] = {
    {{"levels_one_more", "levels", "a step is the range over 2^bits instead of 2^bits - 1",
      "vllm-tq-2bit-hardcoded", "P9", kEncode, kOneGroup},
     {.affine = {.levels = OneLevelMore}}},
    {{"levels_of_2_bits", "levels", "every width is encoded with four levels",
      "vllm-tq-2bit-hardcoded", "P9", kEncode, kOneGroup},
     {.affine = {.levels = FourLevels}}},
    {{"codes_rounded_down", "round", "codes are rounded down", "tq-fused-l1-quantize-basis", "P5",
      kEncode, kOneGroup},
     {.affine = {.round = Down}}},
    {{"ties_of_other_encoder", "round", "ties are rounded as the other encoder does",
      "tq-fused-l1-quantize-basis", "P5", kEncode,
      "codec op=encode format=affine:4:g32:f32 x=f32 rows=1 d=32 data=ties:4"},
     {.affine = {.round = OtherTies}}},
    {{"range_of_half_group", "range", "the range is that of the first half of the group",
      "tq-fused-l1-quantize-basis", "P5", kEncode, kOneGroup},
     {.affine = {.range = FirstHalf}}},
    {{"range_symmetric", "range", "the range is made symmetric", "tq-fused-l1-quantize-basis", "P5",
      kEncode, kOneGroup},
     {.affine = {.range = Symmetric}}},
    {{"zero_without_code", "zero", "zero falls between two codes", "tq-fused-l1-quantize-basis",
      "P5", kEncode, kOneGroup},
     {.affine = {.keeps_zero = false}}},
    {{"scale_in_other_half", "scales", "the scale is rounded to another 16-bit type first",
      "ssd-bf16-dtype", "P4", kEncode, kOneGroup},
     {.affine = {.stored = ScaleInOtherHalf}}},
    {{"scale_without_sign", "scales", "the sign of the scale is lost", "vllm-fp8-v1-wrong", "P9",
      kEncode, "codec op=encode format=affine:4:g32:f32 x=f32 rows=1 d=32 data=gauss:2"},
     {.affine = {.stored = ScaleWithoutSign}}},
    {{"codes_wrap", "clamp", "a code beyond the last one wraps around", "vllm-tq-2bit-hardcoded",
      "P9", kEncode, "codec op=encode format=affine:4:g32:f32 x=f32 rows=1 d=32 data=gauss:2"},
     {.affine = {.code = Wrapped}}},
    {{"words_big_endian", "words", "the bytes of words are in the other order",
      "lcpp-q4-kv-fa-blackwell", "P8", kWords, kOneCodedGroup},
     {.tensors = WordsBigEndian}},
    {{"codes_high_first", "words", "the first code of a word is the highest",
      "lcpp-q4-kv-fa-blackwell", "P8", kWords,
      "codec op=encode format=affine:4:g64:f16 x=bf16 rows=1 d=64 data=gauss:1"},
     {.tensors = WordsHighFirst}},
    {{"codes_interleaved", "words", "a word has its even channels first", "lcpp-q4-kv-fa-blackwell",
      "P8", kWords, "codec op=encode format=affine:4:g64:f16 x=bf16 rows=1 d=64 data=gauss:1"},
     {.tensors = WordsInterleaved}},
    {{"last_word_missing", "words", "the last word of codes is not written",
      "rotating-trim-cross-boundary", "P6", kWords, kOneCodedGroup},
     {.tensors = LastWordZero}},
    {{"scales_and_biases_swapped", "scales", "scales and biases are exchanged",
      "cachelist-state-flatten", "P4", kScales, kOneCodedGroup},
     {.tensors = ScalesAndBiasesSwapped}},
    {{"scales_of_first_row", "scales", "all rows take the scales of the first one",
      "hf-quantized-reorder", "P6", kScales,
      "codec op=decode format=affine:8:g64:f16 x=f32 rows=2 d=64 data=gauss:1"},
     {.tensors = ScalesOfFirstRow}},
    {{"rows_reversed", "rows", "rows of codes are stored in the other order",
      "hf-quantized-reorder lcpp-defrag-cpu-garbage", "P6", kWords,
      "codec op=decode format=affine:8:g64:f16 x=f32 rows=2 d=64 data=gauss:1"},
     {.tensors = RowsReversed}},
    {{"bits_of_2", "code", "every width is read as two bits", "vllm-tq-2bit-hardcoded", "P9",
      kDecode, kOneCodedGroup},
     {.value = TwoBits}},
    {{"codes_signed", "code", "codes are read as signed", "vllm-tq-2bit-hardcoded", "P9", kDecode,
      kOneCodedGroup},
     {.value = Signed}},
    {{"bias_as_zero_point", "value", "the bias is taken for a zero point: (c - B) S",
      "vllm-fp8-v1-wrong", "P9", kDecode, kOneCodedGroup},
     {.value = ZeroPoint}},
    {{"bias_subtracted", "value", "the bias has the other sign", "vllm-fp8-v1-wrong", "P9", kDecode,
      kOneCodedGroup},
     {.value = BiasSubtracted}},
    {{"bias_not_added", "value", "the bias is not added", "lcpp-q4-kv-fa-blackwell", "P8", kDecode,
      kOneCodedGroup},
     {.value = NoBias}},
    {{"scale_not_applied", "value", "the scale is 1",
      "sgl-fp8-scale-not-loaded fi-fp8-scale-ignored", "P9", kDecode, kOneCodedGroup},
     {.value = NoScale}},
    {{"product_rounded", "value",
      "the product is rounded where the profile rounds once, and not where it rounds twice",
      "tq-fused-l1-quantize-basis", "P5", kDecode, kOneCodedGroup},
     {.value = ProductRounded}},
    {{"scale_of_first_group", "group", "all groups take the scale and bias of the first one",
      "ssd-loses-bits-groupsize", "P4", kDecode, kTwoCodedGroups},
     {.group_of = FirstGroup}},
    {{"group_one_channel_late", "group", "the first channel of a group takes the one before it",
      "ssd-loses-bits-groupsize", "P4", kDecode, kTwoCodedGroups},
     {.group_of = OneChannelLate}},
    {{"groups_interleaved", "group", "groups are taken for every n-th channel",
      "ssd-loses-bits-groupsize", "P4", kDecode, kTwoCodedGroups},
     {.group_of = Interleaved}},
    {{"plain_truncated", "store", "values are truncated", "vllm-fp8-v1-wrong", "P9", kPlain,
      "codec op=encode format=bf16 x=f64 rows=1 d=1 data=gauss:210932"},
     {.store = Truncated}},
    {{"plain_ties_away", "store", "ties are rounded away from zero",
      "sgl-fp8-prefill-decode-mismatch", "P5", kPlain,
      "codec op=encode format=bf16 x=f16 rows=1 d=1 data=log_uniform:762178"},
     {.store = TiesAway}},
    {{"by_way_of_bf16", "store", "values pass through bf16", "ssd-bf16-dtype", "P4", kPlain,
      "codec op=round_trip format=f32 x=f16 rows=1 d=1 data=gauss:1"},
     {.store = ByWayOfBf16}},
    {{"by_way_of_f16", "store", "values pass through f16", "ssd-bf16-dtype", "P4", kPlain,
      "codec op=round_trip format=bf16 x=f64 rows=2 d=1 data=mixed:1"},
     {.store = ByWayOfF16}},
    {{"overflow_saturates", "store", "what overflows becomes the largest finite value",
      "vllm-e5m2-silent", "P9", kPlain,
      "codec op=encode format=f8e4m3fn x=f32 rows=1 d=1 data=huge:1"},
     {.store = Saturated}},
    {{"subnormals_flushed", "store", "subnormal values become zero", "vllm-e5m2-silent", "P9",
      kPlain, "codec op=round_trip format=bf16 x=f64 rows=1 d=1 data=mixed:1"},
     {.store = Flushed}},
    {{"minus_zero_lost", "store", "-0 is stored as +0", "vllm-fp8-v1-wrong", "P9", kPlain,
      "codec op=encode format=bf16 x=f32 rows=1 d=2 data=sparse:1"},
     {.store = WithoutMinusZero}},
    {{"e4m3_ends_at_240", "store", "e4m3fn is taken for the variant that ends at 240",
      "vllm-fp8-v1-wrong", "P9", kPlain,
      "codec op=encode format=f8e4m3fn x=f32 rows=1 d=1 data=cauchy:1787"},
     {.store = Largest240}},
    {{"e4m3_of_other_bias", "store", "e4m3fn is taken for the variant with another exponent bias",
      "vllm-fp8-v1-wrong", "P9", kPlain,
      "codec op=round_trip format=f8e4m3fn x=f32 rows=1 d=1 data=gauss:1"},
     {.store = Halved}},
    {{"sign_lost", "store", "the sign is lost", "vllm-fp8-v1-wrong", "P9", kPlain,
      "codec op=encode format=bf16 x=f64 rows=1 d=1 data=constant:210932"},
     {.store = WithoutSign}},
    {{"other_fp8_type", "type", "e5m2 is read as e4m3fn, and e4m3fn as e5m2",
      "vllm-e5m2-silent vllm-fp8-v1-wrong", "P9", kPlainBits,
      "codec op=decode format=f8e5m2 x=f16 rows=1 d=1 data=gauss:1"},
     {.tensors = OtherFp8}},
    {{"bytes_of_half_swapped", "bytes", "the two bytes of 16-bit values are exchanged",
      "ssd-bf16-dtype", "P4", kPlainBits,
      "codec op=encode format=bf16 x=f64 rows=1 d=1 data=gauss:1"},
     {.tensors = BytesOfHalfSwapped}},
    {{"mx_exponent_rounded_up", "profile", "the exponent of an MX scale is rounded up",
      "sgl-fp4-mixed mlx-fp-exponent", "P9", kMxWritten,
      "codec op=encode format=mxfp4:bf16 x=bf16 rows=1 d=32 data=gauss:4"},
     {.profile = OcpRoundedUp}},
    {{"mx_exponent_of_old_writer", "profile",
      "the exponent of an MX scale is rounded to nearest, as MLX did up to 0.31", "mlx-fp-exponent",
      "P9", kMxWritten, kMxBlock},
     {.profile = OcpToNearest}},
    {{"mx_writer_of_sglang", "profile", "MX blocks are written by SGLang's rule", "sgl-fp4-mixed",
      "P9", kMxWritten, kMxBlock},
     {.profile = OcpTiesUp}},
    {{"mx_high_nibble_first", "codes", "the first of two elements is in the high half of a byte",
      "lcpp-q4-kv-fa-blackwell", "P8", kMxStored, kMxBlock},
     {.tensors = HighNibbleFirst}},
    {{"mx_last_block_missing", "codes", "the last block is not written",
      "rotating-trim-cross-boundary", "P6", kMxStored, kMxBlock},
     {.tensors = LastBlockZero}},
    {{"mx_scale_of_two_blocks", "scales", "two blocks take the scale of the first one",
      "sgl-fp4-mixed ssd-loses-bits-groupsize", "P9", kMxStored,
      "codec op=decode format=mxfp4:g16:bf16 x=bf16 rows=1 d=32 data=group_scales:1"},
     {.tensors = ScalesOfPairs}},
    {{"nvfp4_writer_of_vllm", "profile",
      "NVFP4 is written by vLLM's rule: other ties, signs of zero", "sgl-fp4-mixed", "P9",
      kNvfp4Written, "codec op=encode format=nvfp4:bf16 x=bf16 rows=1 d=16 data=gauss:1"},
     {.profile = TakesVllm}},
    {{"nvfp4_four_over_six", "profile", "the maximum of a block may become 4 in place of 6",
      "sgl-fp4-mixed", "P9", kNvfp4Written,
      "codec op=encode format=nvfp4:bf16 x=bf16 rows=1 d=16 data=gauss:1"},
     {.profile = TakesFourOverSix}},
    {{"nvfp4_scales_swizzled", "scales",
      "scales are stored in the order of SM100, and read in that of rows", "vllm-nvfp4-v-swizzle",
      "P9", kNvfp4Stored,
      "codec op=decode format=nvfp4:bf16 x=bf16 rows=4 d=64 data=group_scales:1"},
     {.tensors = ScalesSwizzled}},
    {{"nvfp4_global_scale_inverted", "format",
      "the global scale of encoding is taken for that of decoding", "fi-nvfp4-global-scale", "P9",
      kNvfp4Stored, kGlobalBlock},
     {.format = InverseGlobalScale}},
    {{"nvfp4_global_scale_ignored", "format", "the global scale is 1",
      "fi-nvfp4-global-scale sgl-fp8-scale-not-loaded", "P9", kNvfp4Stored, kGlobalBlock},
     {.format = NoGlobalScale}},
    {{"nvfp4_global_scale_of_other_convention", "format",
      "amax / (448 * 6) is taken where amax / 448 was stored", "fi-nvfp4-global-scale", "P9",
      kNvfp4Stored, kGlobalBlock},
     {.format = OtherConvention}},
    {{"e4m3_scale_to_nan", "scaled", "the scale is max / 480, whose field is NaN of e4m3fn",
      "vllm-fp8-v1-wrong", "P9", kScaled,
      "codec op=encode format=fp8:e4m3fn:token:f32 x=f32 rows=1 d=4 data=gauss:1"},
     {.scaled = {.scale = Scale480, .clamps = false}}},
    {{"tensor_scale_of_1", "scaled", "every scale is 1, which clips what is beyond the codes",
      "sgl-fp8-scale-not-loaded fi-fp8-scale-ignored vllm-e5m2-silent", "P9", kScaled,
      "codec op=encode format=fp8:e4m3fn:s1.25:f32 x=f32 rows=1 d=4 data=gauss:1"},
     {.scaled = {.scale = ScaleOfOne}}},
    {{"scale_by_reciprocal", "scaled", "x is multiplied by 1 / s in place of divided by s",
      "sgl-fp8-prefill-decode-mismatch", "P5", kScaled,
      "codec op=encode format=fp8:e4m3fn:token:f32 x=f32 rows=1 d=4 data=subnormal:1"},
     {.scaled = {.position = ByReciprocal}}},
    {{"int8_codes_truncated", "scaled", "integers are truncated, as a store from f32 does it",
      "vllm-int8-store-truncates", "P9", kScaled,
      "codec op=encode format=int8:token:f32 x=f32 rows=1 d=4 data=gauss:2"},
     {.scaled = {.round = Truncated8}}},
    {{"int8_ties_away", "scaled", "ties between integers are rounded away from zero",
      "vllm-int8-store-truncates", "P9", kScaled,
      "codec op=encode format=int8:token:f32 x=f32 rows=8 d=20 data=ties:3"},
     {.scaled = {.round = HalfAway}}},
    {{"cell_without_scale_room", "tensors", "cells are copied without the room of their scale",
      "vllm-offload-scale-room", "P4", kCells,
      "codec op=encode format=int8:inline:f32 x=f32 rows=2 d=4 data=gauss:1"},
     {.tensors = CellsWithoutRoom}},
    {{"fnuz_read_as_ocp", "read_as",
      "codes of the fnuz types are read as those of OCP: twice as much", "vllm-fp8-v1-wrong", "P9",
      kScaled, "codec op=decode format=fp8:e4m3fnuz:token:f32 x=f32 rows=1 d=4 data=gauss:1"},
     {.scaled = {.read_as = OcpForFnuz}}},
    {{"zero_point_of_masked_scale", "nibble",
      "the zero point is read after its bits are cleared, and is 0", "vllm-fp8-v1-wrong", "P9",
      kNibbles, "codec op=decode format=int4zp:token:f32 x=f32 rows=1 d=8 data=gauss:1"},
     {.nibble = MaskedZeroPoint}},
    {{"scale_with_zero_point", "nibble", "the scale is read with the zero point in its low bits",
      "vllm-fp8-v1-wrong", "P9", kNibbles,
      "codec op=decode format=int4zp:token:f32 x=f32 rows=1 d=8 data=gauss:1"},
     {.nibble = UnmaskedScale}},
};

}  // namespace

std::span<const CodecFault> CodecFaults() { return kFaults; }

const CodecFault* FindCodecFault(std::string_view id) {
  for (const std::span<const CodecFault> faults :
       {CodecFaults(), BlockFaults(), TurboquantFaults(), ChannelFaults()}) {
    for (const CodecFault& fault : faults) {
      if (fault.id == id) return &fault;
    }
  }
  return nullptr;
}

}  // namespace kvcheck
