#include "tools/faults/codec_faults.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "reference/formats/plain.h"
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
// Of packed affine codes.
Tensor* WordsOf(const CodecCase& c, TensorMap* stored) {
  if (!GridOf(c.format)) return nullptr;
  Tensor* codes = FindPlane(stored, "codes");
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
  Tensor* scales = FindPlane(stored, "scales");
  Tensor* biases = FindPlane(stored, "biases");
  if (scales != nullptr && biases != nullptr) std::swap(*scales, *biases);
}
void ScalesOfFirstRow(const CodecCase& c, TensorMap* stored) {
  Tensor* scales = FindPlane(stored, "scales");
  if (scales == nullptr || FindPlane(stored, "biases") == nullptr) return;
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
};

}  // namespace

std::span<const CodecFault> CodecFaults() { return kFaults; }

Tensor* FindPlane(TensorMap* stored, const std::string& plane) {
  const auto found = stored->find(plane);
  return found == stored->end() ? nullptr : &found->second;
}

const CodecFault* FindCodecFault(std::string_view id) {
  for (const std::span<const CodecFault> faults :
       {CodecFaults(), SmallFloatFaults(), ScaledFaults(), BlockFaults(), TurboquantFaults(),
        TurboquantProdFaults(), ChannelFaults()}) {
    for (const CodecFault& fault : faults) {
      if (fault.id == id) return &fault;
    }
  }
  return nullptr;
}

}  // namespace kvcheck
