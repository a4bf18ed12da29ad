// Faults of codes with a scale per token, head or tensor (reference/spec/scaled_format.h,
// int4zp_format.h).

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/formats/scaled_codes.h"
#include "tools/faults/codec_faults.h"

namespace kvcheck {
namespace {

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
  Tensor* cells = FindPlane(stored, "cells");
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

// Rules of uniform codes.
// The scale and the minimum of each vector that has one of both in planes of their own.
void EditParameters(const CodecCase& c, TensorMap* stored,
                    void (*edit)(std::byte* scale, std::byte* minimum, size_t bytes)) {
  Tensor* scales = FindPlane(stored, "scales");
  Tensor* minima = FindPlane(stored, "zeros");
  if (scales == nullptr || minima == nullptr || minima->ElementCount() != c.rows) return;
  const size_t bytes = SizeInBytes(minima->dtype);
  for (size_t at = 0; at < minima->bytes.size(); at += bytes) {
    edit(&scales->bytes[at], &minima->bytes[at], bytes);
  }
}
void MinimumBeforeScale(const CodecCase& c, TensorMap* stored) {
  EditParameters(c, stored, [](std::byte* scale, std::byte* minimum, size_t bytes) {
    std::swap_ranges(scale, scale + bytes, minimum);
  });
}
void MinimumMissing(const CodecCase& c, TensorMap* stored) {
  EditParameters(c, stored, [](std::byte*, std::byte* minimum, size_t bytes) {
    std::fill_n(minimum, bytes, std::byte{0});
  });
}

constexpr std::string_view kUniform =
    "codec encode uniform scales bytes | codec encode uniform zeros bytes | codec decode uniform y "
    "bytes | codec decode uniform y special_value | codec "
    "round_trip uniform y bound | codec round_trip uniform y special_value | codec encode channel "
    "scales bytes | codec encode channel zeros bytes";
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

constexpr CodecFault kFaults[] = {
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
    {{"uniform_minimum_before_scale", "tensors", "scale and minimum of a vector are exchanged",
      "cachelist-state-flatten", "P4", kUniform,
      "codec op=decode format=uniform:4:token:f32 x=f32 rows=1 d=8 data=gauss:1"},
     {.tensors = MinimumBeforeScale}},
    {{"uniform_minimum_missing", "tensors", "the minimum of a vector is not stored",
      "lcpp-q4-kv-fa-blackwell", "P8", kUniform,
      "codec op=decode format=uniform:4:token:f32 x=f32 rows=1 d=8 data=gauss:1"},
     {.tensors = MinimumMissing}},
};

}  // namespace

std::span<const CodecFault> ScaledFaults() { return kFaults; }

}  // namespace kvcheck
